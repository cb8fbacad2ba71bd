package network

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// A Dialer makes connections, and closes all of them at once. Its methods may be called from any goroutine. Its fields must not
// change after the first call.
type Dialer struct {
	// Dial makes a connection, below TLS. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// TLS returns the TLS configuration of a connection, so that certificates may be rotated. An empty ServerName means
	// the host of the address. Nil: no TLS, or, for DialTLS, the certificate authorities of the system.
	TLS func() (*tls.Config, error)

	// Protocols are those that a TLS connection offers (ALPN).
	Protocols []string

	// Timeout limits a connection, and then its TLS handshake. 0: only the context limits them.
	Timeout time.Duration

	// Connected is called for each connection that was made, before its TLS handshake. It may be nil.
	Connected func()

	// Fence is the fence of every request, for a client library that makes connections without the context of a request: see
	// [WithFence]. It may be nil.
	Fence func() error

	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// A DialError says that no connection was made, so nothing was sent.
type DialError struct{ Err error }

// Error returns the text of Err.
func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *DialError) Unwrap() error { return e.Err }

// fenceKey is the key of the context value that is a fence.
type fenceKey struct{}

// WithFence returns a context for a request. While fence returns an error, a Dialer makes no connection for the request: making
// one may take long, and the request is written next.
func WithFence(ctx context.Context, fence func() error) context.Context {
	return context.WithValue(ctx, fenceKey{}, fence)
}

// Connect makes a connection, with TLS if it is configured. The error is a *DialError.
func (d *Dialer) Connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.TLS != nil {
		return d.DialTLS(ctx, network, addr)
	}
	return d.DialPlain(ctx, network, addr)
}

// DialPlain makes a connection without TLS. The error is a *DialError.
func (d *Dialer) DialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, &DialError{err}
	}
	return d.fenced(ctx, raw)
}

// DialTLS makes a connection with TLS. The error is a *DialError.
func (d *Dialer) DialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg, err := d.config(addr)
	if err != nil {
		return nil, &DialError{err}
	}
	raw, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, &DialError{err}
	}
	handshake, cancel := d.limit(ctx)
	defer cancel()
	secured := tls.Client(raw, cfg)
	if err := secured.HandshakeContext(handshake); err != nil {
		_ = raw.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no response to the TLS handshake (does the server expect no TLS?): %w", err)
		}
		return nil, &DialError{err}
	}
	return d.fenced(ctx, secured)
}

// config returns the TLS configuration of a connection to addr.
func (d *Dialer) config(addr string) (*tls.Config, error) {
	cfg := new(tls.Config)
	if d.TLS != nil {
		current, err := d.TLS()
		if err != nil {
			return nil, fmt.Errorf("read the TLS settings: %w", err)
		}
		cfg = current.Clone()
	}
	cfg.NextProtos = d.Protocols
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host
	}
	return cfg, nil
}

// dial makes a connection that Close closes.
func (d *Dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	ctx, cancel := d.limit(ctx)
	defer cancel()
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.Connected != nil {
		d.Connected()
	}
	c := &conn{raw, d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	if d.open == nil {
		d.open = make(map[*conn]struct{})
	}
	d.open[c] = struct{}{}
	return c, nil
}

func (d *Dialer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.Timeout)
}

// fenced returns c, or an error if the fence has closed while c was made.
func (d *Dialer) fenced(ctx context.Context, c net.Conn) (net.Conn, error) {
	fence := d.Fence
	if of, ok := ctx.Value(fenceKey{}).(func() error); ok {
		fence = of
	}
	if fence == nil {
		return c, nil
	}
	if err := fence(); err != nil {
		_ = c.Close()
		return nil, &DialError{err}
	}
	return c, nil
}

// Abort closes the connections, so that every request that waits for a response ends. The Dialer can make others.
func (d *Dialer) Abort() {
	d.mu.Lock()
	open := slices.Collect(maps.Keys(d.open))
	d.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// Close closes the connections. The Dialer makes no others.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.Abort()
}

// A conn is a connection that Abort closes.
type conn struct {
	net.Conn

	dialer *Dialer
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
