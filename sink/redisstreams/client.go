package redisstreams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// silence keeps go-redis from writing to standard error. Its errors are returned anyway.
var silence sync.Once //nolint:gochecknoglobals // the logger of go-redis is one of the process

type noLogger struct{}

func (noLogger) Printf(context.Context, string, ...any) {}

// A client has connections of its own to the servers of a Config. It never retries.
type client struct {
	redis.UniversalClient

	cluster *redis.ClusterClient // nil unless the servers are a cluster
	cfg     Config

	mu    sync.Mutex
	conns map[*trackedConn]struct{} // the open ones
}

func newClient(cfg Config) *client {
	silence.Do(func() { redis.SetLogger(noLogger{}) })
	c := &client{cfg: cfg, conns: make(map[*trackedConn]struct{})}
	// With RESP3, the client would ask for notifications, which needs privileges.
	const protocol, noRetry, noPool = 2, -1, -1
	readTimeout := requestTimeout + cfg.Wait.Timeout
	switch {
	case cfg.Cluster:
		c.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cfg.Addrs, Dialer: c.dial, CredentialsProviderContext: cfg.Credentials, Protocol: protocol, MaxRetries: noRetry,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			ContextTimeoutEnabled: true, PipelinePoolSize: noPool, DisableIdentity: true,
		})
		c.UniversalClient = c.cluster
	case cfg.Sentinel != nil:
		c.UniversalClient = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: cfg.Sentinel.Primary, SentinelAddrs: cfg.Addrs, DB: cfg.Database,
			Dialer: c.dial, CredentialsProviderContext: cfg.Credentials, Protocol: protocol, MaxRetries: noRetry,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			ContextTimeoutEnabled: true, PipelinePoolSize: noPool, DisableIdentity: true,
		})
		c.AddHook(primaryHook{})
	default:
		c.UniversalClient = redis.NewClient(&redis.Options{
			Addr: cfg.Addrs[0], DB: cfg.Database,
			Dialer: c.dial, CredentialsProviderContext: cfg.Credentials, Protocol: protocol, MaxRetries: noRetry,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: readTimeout, WriteTimeout: readTimeout,
			ContextTimeoutEnabled: true, PipelinePoolSize: noPool, DisableIdentity: true,
		})
	}
	return c
}

// node returns the client of the server that has a key.
func (c *client) node(ctx context.Context, key string) (*redis.Client, error) {
	if c.cluster != nil {
		return c.cluster.MasterForKey(ctx, key)
	}
	single, ok := c.UniversalClient.(*redis.Client)
	if !ok {
		return nil, fmt.Errorf("%w: %T is not the client of a server", errFatal, c.UniversalClient)
	}
	return single, nil
}

var errNoNode = errors.New("the node to which the slot is being moved is not known yet")

// nodeAt returns the client of a node of the cluster.
func (c *client) nodeAt(ctx context.Context, addr string) (*redis.Client, error) {
	var mu sync.Mutex
	var found *redis.Client
	err := c.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr == addr {
			found = node
		}
		return nil
	})
	if err == nil && found == nil {
		err = errNoNode
	}
	return found, err
}

// reload makes the client read the slots of the cluster again, in the background.
func (c *client) reload(ctx context.Context) {
	if c.cluster != nil {
		c.cluster.ReloadState(ctx)
	}
}

// dial connects to a server or a Sentinel, with TLS if it is configured. It logs in to a Sentinel, and go-redis to a server.
func (c *client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	isSentinel := c.cfg.Sentinel != nil && network != toPrimary
	conn, err := c.open(ctx, addr)
	if err != nil || !isSentinel {
		return conn, err
	}
	if err := c.cfg.Sentinel.loginSentinel(ctx, conn, addr); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// open makes a connection, with TLS if it is configured.
func (c *client) open(ctx context.Context, addr string) (net.Conn, error) {
	dial := c.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	raw, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := c.track(raw)
	if c.cfg.TLS == nil {
		return conn, nil
	}
	encrypted, err := c.handshake(ctx, conn, addr)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}

func (c *client) handshake(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	cfg, err := c.cfg.TLS()
	if err != nil {
		return nil, err
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		if cfg.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	encrypted := tls.Client(conn, cfg)
	return encrypted, encrypted.HandshakeContext(ctx)
}

// A trackedConn is a connection that abort closes.
type trackedConn struct {
	net.Conn

	client *client
}

func (c *client) track(conn net.Conn) *trackedConn {
	t := &trackedConn{Conn: conn, client: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[t] = struct{}{}
	return t
}

// Close closes the connection.
func (t *trackedConn) Close() error {
	t.client.mu.Lock()
	delete(t.client.conns, t)
	t.client.mu.Unlock()
	return t.Conn.Close()
}

// abort closes the connections, so that every request that waits for a response ends. go-redis heeds only the deadline of a
// context.
func (c *client) abort() {
	c.mu.Lock()
	conns := make([]*trackedConn, 0, len(c.conns))
	for conn := range c.conns {
		conns = append(conns, conn)
	}
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// attempt calls f, and closes the connections if ctx ends meanwhile. Its error is that of errorOf, or the cause of ctx.
func (c *client) attempt(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, c.abort)
	err := f()
	stop()
	if err == nil || errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrMissing) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errorOf(err)
}
