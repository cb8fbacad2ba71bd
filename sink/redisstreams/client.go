package redisstreams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// silence keeps go-redis from writing to standard error. Its errors are returned anyway.
var silence sync.Once //nolint:gochecknoglobals // the logger of go-redis is one of the process

// connections are connections to the servers of a Config. They never retry.
type connections struct {
	redis.UniversalClient

	single  *redis.Client        // nil if the servers are a cluster
	cluster *redis.ClusterClient // otherwise nil
	network network.Dialer
}

func (c Config) newConnections() *connections {
	silence.Do(logging.Disable)
	conns := &connections{network: network.Dialer{Dial: c.Dial, TLS: c.TLS, Timeout: dialTimeout}}
	timeout := requestTimeout + c.Wait.Timeout
	options := &redis.UniversalOptions{
		Addrs: c.Addrs, DB: c.Database, IsClusterMode: c.Cluster, CredentialsProviderContext: c.Credentials,
		Protocol:   2,  // with 3, the client would ask for notifications, which needs privileges
		MaxRetries: -1, // none
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return conns.network.Connect(ctx, "tcp", addr)
		},
		DialTimeout: 2 * dialTimeout, DialerRetries: 1, ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true,
		PipelinePoolSize: -1, // none
		ConnMaxIdleTime:  idleLimit,
		DisableIdentity:  true,
	}
	if c.Sentinel != nil {
		options.MasterName = c.Sentinel.Primary
		options.Dialer = c.Sentinel.dialer(options.Dialer)
	}
	conns.UniversalClient = redis.NewUniversalClient(options)
	if c.Sentinel != nil {
		conns.AddHook(primaryHook{})
	}
	conns.single, _ = conns.UniversalClient.(*redis.Client)
	conns.cluster, _ = conns.UniversalClient.(*redis.ClusterClient)
	return conns
}

// node returns the client of the server that has a key.
func (c *connections) node(ctx context.Context, key string) (*redis.Client, error) {
	if c.cluster != nil {
		return c.cluster.MasterForKey(ctx, key)
	}
	return c.single, nil
}

var errNoNode = errors.New("the node to which the slot is being moved is not known yet")

// nodes returns the client of each primary of the cluster, by address. That of a server which is not in a cluster has no address.
func (c *connections) nodes(ctx context.Context) (map[string]*redis.Client, error) {
	if c.cluster == nil {
		return map[string]*redis.Client{"": c.single}, nil
	}
	var mu sync.Mutex
	found := make(map[string]*redis.Client)
	err := c.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found[node.Options().Addr] = node
		return nil
	})
	return found, err
}

// nodeAt returns the client of a node of the cluster.
func (c *connections) nodeAt(ctx context.Context, addr string) (*redis.Client, error) {
	nodes, err := c.nodes(ctx)
	if err == nil && nodes[addr] == nil {
		err = errNoNode
	}
	return nodes[addr], err
}

// reload makes the client read the slots of the cluster again, in the background.
func (c *connections) reload(ctx context.Context) {
	if c.cluster != nil {
		c.cluster.ReloadState(ctx)
	}
}

// attempt calls f, and closes the connections if ctx ends meanwhile, because go-redis heeds only the deadline of a context. Its error
// is that of errorOf, or the cause of ctx.
func (c *connections) attempt(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, c.network.Abort)
	err := f()
	stop()
	if err == nil || errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrMissing) || errors.Is(err, sink.ErrSuperseded) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errorOf(err)
}

// readLimit returns proto-max-bulk-len of a server, or its default if the user may not read it.
func (c *connections) readLimit(ctx context.Context) int {
	const name = "proto-max-bulk-len"
	settings, _ := c.ConfigGet(ctx, name).Result() // nil if it fails
	limit, _ := strconv.Atoi(settings[name])
	return cmp.Or(max(limit, 0), defaultEntryBytes)
}

// exists reports whether a stream exists. The error wraps sink.ErrAccess if the user may not read it, or if the key is not
// a stream.
func (c *connections) exists(ctx context.Context, stream string) (bool, error) {
	err := c.XLen(ctx, stream).Err()
	if err == nil {
		n, err := c.Exists(ctx, stream).Result()
		return n > 0, err
	}
	if err = errorOf(err); errors.Is(err, errUnusable) {
		return false, fmt.Errorf("%w: stream %s: %w", errAccess, stream, err)
	}
	return false, err
}

// A client is the [sink.Sink] of Redis, and reads streams and position stores. Its connections are for everything but records: a
// Writer has its own.
type client struct {
	*lane.Base

	conns *connections
	cfg   Config
	limit int // of an entry, in bytes
}

// newClient returns a client that has contacted nobody.
func (c Config) newClient(log *slog.Logger) (*client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	cl := &client{cfg: c, conns: c.newConnections(), limit: c.MaxEntryBytes}
	cl.Base = lane.NewBase(lane.Options{
		Broker: strings.Join(c.Addrs, ","), ReachAdvice: reachAdvice, WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes, PerDestination: true,
		RequestRecords: requestRecords, RequestBytes: requestBytes, Prepare: func(r *sink.Record) error { return checkSize(r, cl.limit) },
	}, log)
	return cl, nil
}

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	cl, err := c.newClient(log)
	if err != nil {
		return nil, err
	}
	err = cl.retry(ctx, func(ctx context.Context) error {
		if err := cl.conns.Eval(ctx, "return 1", nil).Err(); err != nil {
			return err
		}
		if cl.limit == 0 {
			cl.limit = cl.conns.readLimit(ctx)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, cl.Close())
	}
	return cl, nil
}

// retry calls f until it succeeds or ctx ends.
func (c *client) retry(ctx context.Context, f func(ctx context.Context) error) error {
	return c.Retry(ctx, func(ctx context.Context) error { return c.conns.attempt(ctx, func() error { return f(ctx) }) })
}

// NewWriter implements [sink.Sink].
func (c *client) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return c.NewWriterOver(newTransport(c.cfg, c.Base), cfg)
}

// CheckDestinations implements [sink.Sink]. It does not find out whether the user may write.
func (c *client) CheckDestinations(ctx context.Context, destinations ...string) error {
	return c.CheckEach(ctx, destinations, func(ctx context.Context, name string) error {
		return c.conns.attempt(ctx, func() error {
			exists, err := c.conns.exists(ctx, name)
			if err == nil && !exists && !c.cfg.CreateStreams {
				return errMissing
			}
			return err
		})
	})
}

// Close implements [sink.Sink] and [sink.Reader].
func (c *client) Close() error { return c.conns.Close() }
