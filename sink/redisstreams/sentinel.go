package redisstreams

import (
	"context"
	"fmt"
	"net"
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

// dialer returns dial for connections to Sentinels and to the primary. It logs in to Sentinels.
func (s *Sentinel) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || network == toPrimary || s.Credentials == nil {
			return conn, err
		}
		if err := s.login(ctx, conn); err != nil {
			_ = conn.Close()
			if isReply(err) {
				err = fmt.Errorf("%w: Sentinel at %s: %w", sink.ErrAccess, addr, serverError(err.Error()))
			}
			return nil, err
		}
		return conn, nil
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// login logs in to a Sentinel over a new connection, with a client that has no other.
func (s *Sentinel) login(ctx context.Context, conn net.Conn) error {
	client := redis.NewClient(&redis.Options{
		Dialer:                     func(context.Context, string, string) (net.Conn, error) { return keptConn{conn}, nil },
		CredentialsProviderContext: s.Credentials, Protocol: 2, MaxRetries: -1, PoolSize: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// A keptConn is a connection that stays open when its client is closed.
type keptConn struct{ net.Conn }

// Close does nothing.
func (keptConn) Close() error { return nil }
