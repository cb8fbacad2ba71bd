package redisstreams

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Sentinel is how to ask Sentinels for the primary. They use Config.TLS too.
type Sentinel struct {
	Primary string // its name at the Sentinels

	// Credentials is like Config.Credentials, for the Sentinels.
	Credentials func(ctx context.Context) (user, password string, err error)
}

// toPrimary is the network of connections to the primary: go-redis passes connections to it and to Sentinels to the same
// dialer, and has no function for the credentials of Sentinels.
const toPrimary = "tcp to the primary"

// A primaryHook gives connections to the primary their network.
type primaryHook struct{}

// DialHook implements [redis.Hook].
func (primaryHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return next(ctx, toPrimary, addr) }
}

// ProcessHook implements [redis.Hook].
func (primaryHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (primaryHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// loginSentinel logs in to a Sentinel over a new connection.
func (s *Sentinel) loginSentinel(ctx context.Context, conn net.Conn, addr string) error {
	if s.Credentials == nil {
		return nil
	}
	user, password, err := s.Credentials(ctx)
	if err != nil {
		return err
	}
	args := []string{"AUTH", password}
	if user != "" {
		args = []string{"AUTH", user, password}
	}
	request := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	line, err := readLine(conn)
	if err != nil {
		return err
	}
	if line != "+OK" {
		return fmt.Errorf("%w: Sentinel at %s: %w", sink.ErrAccess, addr, serverError(line))
	}
	return conn.SetDeadline(time.Time{})
}

// readLine reads a line without reading what follows it.
func readLine(conn net.Conn) (string, error) {
	const longest = 1024
	var line []byte
	for b := make([]byte, 1); len(line) < longest; line = append(line, b[0]) {
		if _, err := conn.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			break
		}
	}
	return strings.TrimSuffix(string(line), "\r"), nil
}
