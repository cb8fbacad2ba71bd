package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

const (
	dialTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second

	// produceTimeout is how long a broker may wait for its replicas. It is less than
	// readTimeout, so that a slow replica is an answer and not a broken connection.
	produceTimeout = 15 * time.Second
	readTimeout    = 20 * time.Second

	// controlTimeout bounds any other request; the next broker is asked then.
	controlTimeout = 10 * time.Second

	// idleTimeout is how long a connection may be unused before it is replaced rather than
	// trusted: brokers close it after connections.max.idle.ms, by default 10 minutes.
	idleTimeout = 9 * time.Minute
)

// protocol is the newest version of the protocol that is spoken: 3.7 is the first whose
// NOT_LEADER_OR_FOLLOWER names the leader (KIP-951). With older brokers it is negotiated
// downwards.
func protocol() sarama.KafkaVersion { return sarama.V3_7_0_0 }

// A dialFunc makes a connection, as net.Dialer.DialContext does.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A wire makes connections to brokers.
type wire struct {
	config sarama.Config               // complete but for dialer and login
	tls    func() (*tls.Config, error) // nil: plaintext
	sasl   *SASL                       // nil: no login
	dial   dialFunc
}

func newWire(cfg *Config, dial dialFunc) (*wire, error) {
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	sc.Version = protocol()
	sc.Net.DialTimeout = dialTimeout
	sc.Net.WriteTimeout = writeTimeout
	sc.Net.ReadTimeout = readTimeout
	sc.MetricRegistry = noMetrics{metrics.NewRegistry()}
	if err := sc.Validate(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return &wire{config: *sc, tls: cfg.TLS, sasl: cfg.SASL, dial: dial}, nil
}

// A link is an open connection to one broker, logged in.
type link struct {
	*sarama.Broker
	conn *watchedConn
	addr string
}

// connect makes a connection and ends it when ctx ends before it is made.
func (w *wire) connect(ctx context.Context, addr string, timeout time.Duration) (*link, error) {
	var conn *watchedConn // set by the dialer below, before Connected returns
	config := w.config
	if err := w.sasl.login(ctx, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	config.Net.ReadTimeout = timeout
	dialWith(func(network, addr string) (net.Conn, error) {
		c, err := w.dialTLS(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn = &watchedConn{Conn: c}
		conn.watch(ctx)
		return conn, nil
	}, &config)
	b := sarama.NewBroker(addr)
	if err := b.Open(&config); err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	if ok, err := b.Connected(); !ok {
		heard := silent
		if conn != nil {
			heard = reply(conn.heard.Load())
		}
		return nil, connectError(addr, err, heard, w.tls != nil, w.sasl != nil)
	}
	conn.unwatch()
	return &link{Broker: b, conn: conn, addr: addr}, nil
}

// dialTLS makes the TCP connection and, if configured, finishes the TLS handshake on it.
// sarama could do the latter, but only within the first request, where its failure cannot
// be told from others.
func (w *wire) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, &dialError{err}
	}
	if w.tls == nil {
		return c, nil
	}
	config, err := w.tls()
	if err != nil {
		_ = c.Close()
		return nil, &dialError{err}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			_ = c.Close()
			return nil, &dialError{err}
		}
		config = config.Clone()
		config.ServerName = host
	}
	tc := tls.Client(c, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the TLS handshake is not answered (is it a plaintext listener?): %w", err)
		}
		return nil, err
	}
	return tc, nil
}

// A watchedConn can be cut by a context, at whatever sarama is waiting for on it; sarama
// itself knows timeouts only.
type watchedConn struct {
	net.Conn
	heard atomic.Uint32 // a reply
	stop  func() bool

	// request is what a produce request written now is the envelope of. It belongs to the
	// goroutine that uses the link.
	request *request

	// fence is asked whether a produce request may still be completed; nil: it may.
	fence func() error
}

// A reply is what has been read from a connection so far.
type reply uint32

const (
	silent     reply = iota // nothing
	replied                 // an answer, to all appearance
	repliedTLS              // a TLS alert: somebody expected a handshake
)

// watch closes the connection when ctx ends. Between watch and unwatch neither is called
// again.
func (c *watchedConn) watch(ctx context.Context) {
	c.stop = context.AfterFunc(ctx, func() { _ = c.Conn.Close() })
}

func (c *watchedConn) unwatch() { c.stop() }

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.heard.Load() == uint32(silent) {
		const alert = 0x15 // RFC 8446, 5.1; an answer begins with a length below 2²⁴
		heard := replied
		if b[0] == alert {
			heard = repliedTLS
		}
		c.heard.Store(uint32(heard))
	}
	return n, err
}

// writtenAtOnce is what the kernel takes of a connection with nothing else under way.
const writtenAtOnce = 16 << 10

// writeFenced writes a produce request. The last byte of one that may have to wait for the broker
// to read is written only if the fence is still open then: without it the request is nothing, and
// the process may have been stopped in the middle, for so long that another one sends the same
// records.
func (c *watchedConn) writeFenced(msg []byte) error {
	if n := len(msg) - 1; n > writtenAtOnce {
		if _, err := c.Conn.Write(msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
	}
	if c.fence != nil {
		if err := c.fence(); err != nil {
			return err
		}
	}
	_, err := c.Conn.Write(msg)
	return err
}

// Close ends the connection and what watches it.
func (c *watchedConn) Close() error {
	c.unwatch()
	return c.Conn.Close()
}

var _ io.Closer = (*link)(nil)

// Close ends the connection. It waits for the answer of what is outstanding, which the
// closing of the connection makes an error. Only the goroutine that uses l may call it.
func (l *link) Close() error {
	l.conn.unwatch()
	return l.Broker.Close()
}
