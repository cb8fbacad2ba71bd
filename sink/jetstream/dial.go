package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	dialTimeout  = 5 * time.Second // for a connection and the login
	pingInterval = 5 * time.Second
	missedPings  = 2 // after that many the server counts as lost
)

// dial connects to the first server that accepts us, beginning with any. If none does, the error has the last error of each
// one, and wraps errAccess if a server rejects us and none of the others may accept us.
func (c Config) dial(ctx context.Context) (*link, error) {
	var failed []error
	access := 0
	for _, i := range rand.Perm(len(c.Servers)) {
		l, err := c.dialServer(ctx, c.Servers[i])
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil && len(failed) > 0 {
			break // the error of this server is that ctx has ended
		}
		if isAccess(err) {
			access++
		}
		failed = append(failed, fmt.Errorf("%s: %w", c.hosts()[i], err))
	}
	err := &dialError{failed}
	if access == len(failed) {
		if errors.Is(failed[0], errAccess) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errAccess, err)
	}
	return nil, err
}

// A dialError has the errors of all servers.
type dialError struct{ servers []error }

func (e *dialError) Error() string {
	var texts []string
	for _, err := range e.servers {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (e *dialError) Unwrap() []error { return e.servers }

func (c Config) dialServer(ctx context.Context, server string) (*link, error) {
	u, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	login, err := c.Credentials.option(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(c, u.Host)
	d := &dialer{ctx: ctx, dial: c.Dial, link: l}
	options := []nats.Option{
		login,
		nats.Name(c.Name), nats.NoReconnect(), nats.Timeout(dialTimeout), nats.CustomInboxPrefix(c.InboxPrefix),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(missedPings), nats.SetCustomDialer(d), nats.SkipHostLookup(),
		nats.FlusherTimeout(c.RequestTimeout), // of each write: a server that does not read is lost
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.handleError(err) }),
		nats.ClosedHandler(func(conn *nats.Conn) { l.handleClosed(conn.LastError()) }),
	}
	if c.TLS != nil {
		cfg, err := c.TLS()
		if err != nil {
			return nil, fmt.Errorf("load the TLS configuration: %w", err)
		}
		options = append(options, nats.Secure(cfg))
	}
	conn, err := nats.Connect(u.String(), options...)
	if !d.stop() && err == nil { // ctx has ended, and the connection is closed
		conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if d.err != nil {
			err = d.err // nats.go does not report that a connection was refused
		}
		return nil, err
	}
	if err := l.start(conn); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// A dialer makes the network connection of a link. It closes it if ctx ends before stop.
type dialer struct {
	ctx  context.Context //nolint:containedctx // nats.CustomDialer has none
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	link *link
	err  error

	mu      sync.Mutex
	release func() bool
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	dial := d.dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	conn, err := dial(d.ctx, network, addr)
	if err != nil {
		d.err = err
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.link.network = conn
	d.release = context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// stop ends the influence of ctx. It returns false if ctx has closed the connection.
func (d *dialer) stop() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.release == nil || d.release()
}
