package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

const (
	dialTimeout  = 5 * time.Second // for a connection and the login
	pingInterval = 5 * time.Second // or RequestTimeout if that is shorter; a server that has not responded by the next one is lost
)

// dial connects to the first server that accepts us. The error wraps errAccess if all servers reject us.
func (c Config) dial(ctx context.Context) (*link, error) {
	l, _, err := network.First(ctx, c.Servers, rand.IntN(len(c.Servers)), func(ctx context.Context, server string) (*link, error) {
		u, err := parseServer(server)
		if err != nil {
			return nil, err
		}
		l, err := c.dialServer(ctx, u)
		if err != nil && isAccess(err) && !errors.Is(err, errAccess) {
			err = fmt.Errorf("%w: %w", errAccess, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Host, err)
		}
		return l, nil
	}, (*link).close)
	return l, err
}

func (c Config) dialServer(ctx context.Context, u *url.URL) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	login, err := c.Credentials.option(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the credentials: %w", err)
	}
	l := newLink(c, u.Host)
	var dialErr error // nats.go does not report that a connection was refused
	dial := dialer(func(network, addr string) (conn net.Conn, err error) {
		conn, dialErr = l.network.DialPlain(ctx, network, addr)
		return conn, dialErr
	})
	options := []nats.Option{
		login,
		nats.Name(c.Name), nats.NoReconnect(), nats.Timeout(dialTimeout), nats.CustomInboxPrefix(c.InboxPrefix),
		nats.PingInterval(min(pingInterval, c.RequestTimeout)), nats.MaxPingsOutstanding(1), nats.SetCustomDialer(dial), nats.SkipHostLookup(),
		nats.FlusherTimeout(c.RequestTimeout), // of each write: a server that does not read is lost
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.handleError(err) }),
		nats.ClosedHandler(func(conn *nats.Conn) { l.fail(cmp.Or(conn.LastError(), nats.ErrConnectionClosed)) }),
	}
	if c.TLS != nil {
		cfg, err := c.TLS()
		if err != nil {
			return nil, fmt.Errorf("load the TLS configuration: %w", err)
		}
		options = append(options, nats.Secure(cfg))
	}
	stop := context.AfterFunc(ctx, l.network.Close)
	conn, err := nats.Connect(u.String(), options...)
	if !stop() && err == nil { // ctx has ended, and the connection is closed
		conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, cmp.Or(dialErr, err)
	}
	if err := l.start(conn); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// A dialer is a [nats.CustomDialer].
type dialer func(network, addr string) (net.Conn, error)

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }
