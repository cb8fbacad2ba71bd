package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second

	// produceTimeout is how long a broker may wait for its replicas. It is less than readTimeout, so
	// that a slow replica leads to a response and not to a lost connection.
	produceTimeout = 15 * time.Second
	readTimeout    = 20 * time.Second

	// controlTimeout limits any other request. After it, the next broker is used.
	controlTimeout = 10 * time.Second

	// moveTimeout limits connecting to another broker while the current one responds, and the check of
	// an idle connection.
	moveTimeout = 2 * time.Second

	// trustFor is how long after the last response a connection is used without a check.
	trustFor = 10 * time.Second

	// idleTimeout is how long a connection may be unused before it is replaced. Brokers close it after
	// connections.max.idle.ms, by default 10 minutes.
	idleTimeout = 9 * time.Minute
)

// protocol returns the newest supported protocol version. 3.7 is the first whose NOT_LEADER_OR_FOLLOWER
// names the leader (KIP-951). Older brokers negotiate a lower version.
func protocol() sarama.KafkaVersion { return sarama.V3_7_0_0 }

// A dialFunc makes a network connection, like net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A connector makes connections to brokers.
type connector struct {
	config sarama.Config               // without dialer and login
	tls    func() (*tls.Config, error) // nil: plaintext
	sasl   *SASL                       // nil: no login

	readTimeout time.Duration // of produce requests

	dial dialFunc
}

func newConnector(cfg *Config, dial dialFunc) (*connector, error) {
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	sc.Version = protocol()
	sc.Net.DialTimeout = dialTimeout
	sc.Net.WriteTimeout = writeTimeout
	sc.MetricRegistry = noMetrics{metrics.NewRegistry()}
	if err := sc.Validate(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return &connector{config: *sc, tls: cfg.TLS, sasl: cfg.SASL, dial: dial, readTimeout: readTimeout}, nil
}

// A link is an open connection to one broker, logged in.
type link struct {
	*sarama.Broker
	conn *watchedConn
	addr string
}

// connect opens a connection. If ctx ends first, it gives up.
func (w *connector) connect(ctx context.Context, addr string, timeout time.Duration) (*link, error) {
	var conn *watchedConn // set by the dialer below, before Connected returns
	config := w.config
	if err := w.sasl.configureLogin(ctx, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	config.Net.ReadTimeout = timeout
	dialWith(func(protocol, addr string) (net.Conn, error) {
		c, err := w.dialTLS(ctx, protocol, addr)
		if err != nil {
			return nil, err
		}
		conn = &watchedConn{Conn: c}
		conn.closeWith(ctx)
		return conn, nil
	}, &config)
	b := sarama.NewBroker(addr)
	if err := b.Open(&config); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	if ok, err := b.Connected(); !ok {
		heard := noReply
		if conn != nil {
			heard = reply(conn.firstReply.Load())
		}
		return nil, connectError(addr, err, heard, w.tls != nil, w.sasl != nil)
	}
	conn.detach()
	return &link{Broker: b, conn: conn, addr: addr}, nil
}

// dialTLS makes the TCP connection and, if configured, the TLS handshake. sarama would do the handshake
// within the first request, where its failure could not be told from others. The error is a [*network.DialError] only if there is no
// connection.
func (w *connector) dialTLS(ctx context.Context, protocol, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connected := false
	d := network.Dialer{Dial: w.dial, TLS: w.tls, Connected: func() { connected = true }}
	c, err := d.Connect(ctx, protocol, addr)
	if err == nil || !connected {
		return c, err
	}
	err = errors.Unwrap(err)
	if ctx.Err() != nil {
		err = otherListener(fmt.Errorf("no response to the TLS handshake (is it a plaintext listener?): %w", err))
	}
	return nil, err
}

// A watchedConn is a connection that a context can close while sarama waits for it. sarama itself supports
// timeouts only.
type watchedConn struct {
	net.Conn
	firstReply   atomic.Uint32 // a reply
	heardAt      atomic.Int64  // time of the last read, in Unix nanoseconds
	stopWatching func() bool

	// request has the batches of the produce request that is being written. Only the goroutine that
	// uses the link accesses it.
	request *request

	// fence returns an error if a produce request must not be completed. Nil: always open.
	fence func() error
}

// A reply is the kind of data that was first read from a connection.
type reply uint32

const (
	noReply    reply = iota // nothing
	replied                 // probably a response
	repliedTLS              // a TLS alert: the listener expects a handshake
)

// closeWith closes the connection when ctx ends. detach stops this, and must be called before the next
// closeWith.
func (c *watchedConn) closeWith(ctx context.Context) {
	c.stopWatching = context.AfterFunc(ctx, func() { _ = c.Conn.Close() })
}

func (c *watchedConn) detach() { c.stopWatching() }

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heardAt.Store(time.Now().UnixNano())
	}
	if n > 0 && c.firstReply.Load() == uint32(noReply) {
		const alert = 0x15 // RFC 8446, 5.1; a response starts with a length below 2²⁴
		heard := replied
		if b[0] == alert {
			heard = repliedTLS
		}
		c.firstReply.Store(uint32(heard))
	}
	return n, err
}

// writtenAtOnce is how many bytes the kernel accepts at once on an idle connection.
const writtenAtOnce = 16 << 10

// writeFenced writes a produce request. Writing a large request may take long, and the process may be
// suspended meanwhile, for so long that another process sends the same records. So writeFenced checks the
// fence again before the last byte of a large request. Without that byte, the broker ignores the request.
func (c *watchedConn) writeFenced(msg []byte) error {
	if n := len(msg) - 1; n > writtenAtOnce {
		if _, err := c.Conn.Write(msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
	}
	if c.fence != nil {
		if err := c.fence(); err != nil {
			return &fenceError{err}
		}
	}
	_, err := c.Conn.Write(msg)
	return err
}

// A fenceError is the error of a closed fence. The request was not completed.
type fenceError struct{ err error }

func (e *fenceError) Error() string { return e.err.Error() }

func (e *fenceError) Unwrap() error { return e.err }

// Close closes the connection and detaches it from its context.
func (c *watchedConn) Close() error {
	c.detach()
	return c.Conn.Close()
}

var errForgotten = errors.New("the idle connection gets no response any more")

// check sends a small request if nothing was received for trustFor. A firewall may have dropped the idle
// connection without notice, and a request with records would then wait for readTimeout. After an error, close
// l. Only the goroutine that uses l may call it.
func (l *link) check() error {
	if time.Since(time.Unix(0, l.conn.heardAt.Load())) < trustFor {
		return nil
	}
	late := time.AfterFunc(moveTimeout, func() { _ = l.conn.Conn.Close() })
	_, err := l.ApiVersions(&sarama.ApiVersionsRequest{})
	if !late.Stop() {
		return errForgotten
	}
	return err
}

// use runs request, which fails if ctx ends, on a connection that is not forgotten. After an error, close l, unless the
// broker has responded.
func (l *link) use(ctx context.Context, request func(l *link) error) error {
	l.conn.closeWith(ctx)
	defer l.conn.detach()
	if err := l.check(); err != nil {
		return err
	}
	return request(l)
}

// Close closes the connection. A request in flight fails before Close returns. Only the goroutine that uses l
// may call it.
func (l *link) Close() error {
	l.conn.detach()
	return l.Broker.Close()
}

// control is the connection for all requests but produce: metadata, topic configurations, creating topics,
// producer ids. It uses any broker that responds, and sends one request at a time. Methods may be called from
// any goroutine; senders do not call them.
type control struct {
	connector *connector
	seeds     []string

	inUse       chan struct{} // cap 1; a mutex for requests, with a context
	link        *link         // nil: not connected
	brokerAddrs []string      // addresses from metadata
}

// do calls request with a connection. If a broker cannot be reached or does not respond, do uses the next one;
// if all fail, the error has the last cause for each address. do returns an error that wraps sink.ErrAccess,
// and the end of ctx, immediately. For a response with an error code, request must return nil; the caller of do
// handles the code.
func (c *control) do(ctx context.Context, request func(l *link) error) error {
	select {
	case c.inUse <- struct{}{}:
	case <-ctx.Done():
		return causes{context.Cause(ctx)}
	}
	defer func() { <-c.inUse }()
	var causes causes
	if c.link != nil {
		err := c.runOnLink(ctx, request)
		if err == nil {
			return nil
		}
		causes = append(causes, err)
	}
	for _, addr := range c.addresses() {
		if ctx.Err() != nil {
			return append(causes, context.Cause(ctx))
		}
		l, err := c.connector.connect(ctx, addr, controlTimeout)
		if err == nil {
			c.link = l
			if err = c.runOnLink(ctx, request); err == nil {
				return nil
			}
		}
		if errors.Is(err, sink.ErrAccess) {
			return err
		}
		causes = append(causes, err)
	}
	return causes
}

// askAnother connects to the next broker from metadata that can be reached, except those at the addresses of
// avoid. It does nothing if there is none, or if there is no connection yet.
func (c *control) askAnother(ctx context.Context, avoid []string) {
	select {
	case c.inUse <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.inUse }()
	if c.link == nil {
		return
	}
	addrs := slices.Sorted(slices.Values(c.brokerAddrs))
	behind, _ := slices.BinarySearch(addrs, c.link.addr+"\x00") // the current address may be one of the configuration
	for _, addr := range slices.Concat(addrs[behind:], addrs[:behind]) {
		if addr == c.link.addr || slices.Contains(avoid, addr) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, moveTimeout)
		l, err := c.connector.connect(limited, addr, controlTimeout)
		cancel()
		if err == nil {
			_ = c.link.Close() // it has no request in flight
			c.link = l
			return
		}
	}
}

// runOnLink runs request on c.link, and closes the link if that fails.
func (c *control) runOnLink(ctx context.Context, request func(l *link) error) error {
	err := c.link.use(ctx, request)
	if err == nil {
		return nil
	}
	err = requestError(c.link.addr, err, c.connector.sasl != nil)
	_ = c.link.Close() // broken as it is
	c.link = nil
	return err
}

// addresses returns the addresses of brokers: those from metadata, then the configured ones.
func (c *control) addresses() []string {
	addrs := slices.Clone(c.brokerAddrs)
	for _, seed := range c.seeds {
		if !slices.Contains(addrs, seed) {
			addrs = append(addrs, seed)
		}
	}
	return addrs
}

// setBrokers replaces the addresses from metadata. Only a request may call it.
func (c *control) setBrokers(addrs []string) { c.brokerAddrs = addrs }

// preferBroker makes addr the first broker for the next request. Only a request may call it.
func (c *control) preferBroker(addr string) {
	c.brokerAddrs = slices.Insert(slices.DeleteFunc(c.brokerAddrs, func(a string) bool { return a == addr }), 0, addr)
}

// close closes the connection.
func (c *control) close() {
	c.inUse <- struct{}{}
	defer func() { <-c.inUse }()
	if c.link != nil {
		_ = c.link.Close() // no request is in flight on it
		c.link = nil
	}
}

// causes are the errors of several brokers, one per broker.
type causes []error

func (c causes) Error() string {
	texts := make([]string, len(c))
	for i, err := range c {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (c causes) Unwrap() []error { return c }
