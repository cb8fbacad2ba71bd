package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// connectTimeout limits each attempt to connect to a server, including TLS and the login.
const connectTimeout = 10 * time.Second

// closeWait is how long the broker may take to respond to the end of a connection. While it blocks the connection, it does not.
const closeWait = 2 * time.Second

// silentClose is how long RabbitMQ waits at least before it closes the connection of a login that fails. It sends no response.
// A connection that is lost sooner was lost for another reason.
const silentClose = 2 * time.Second

const accessAdvice = "Check the user, the password and the virtual host, and that the user has a permission there: rabbitmqctl list_permissions --vhost VHOST."

// A connection is an AMQP connection to one server.
type connection struct {
	*amqp.Connection
	wire  *wire
	addr  string
	alarm *alarm

	collectors sync.WaitGroup // goroutines of the channels, which end when the connection is closed
}

// A dialer makes connections to the servers of a Config.
type dialer struct {
	Config

	network network.Dialer
	next    int // index of the server that the next connection attempts first
}

func (c Config) newDialer() *dialer {
	return &dialer{Config: c, network: network.Dialer{Dial: c.Dial, TLS: c.TLS}}
}

// connectAny connects to the first server that responds, beginning with the one after the last. One goroutine calls it.
func (d *dialer) connectAny(ctx context.Context) (*connection, error) {
	k, server, err := network.First(ctx, d.Servers, d.next, d.connect, (*connection).close)
	if err == nil {
		d.next = (server + 1) % len(d.Servers)
	}
	return k, err
}

// connect connects to a server. The error wraps sink.ErrAccess if the broker rejects us.
func (d *dialer) connect(ctx context.Context, addr string) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no response in %s", connectTimeout))
	defer cancel()
	password, err := d.password(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	raw, err := d.network.Connect(ctx, "tcp", addr)
	if reason := sink.TLSReason(err, "broker"); reason != "" {
		return nil, fmt.Errorf("%w: %s: %s: %w", sink.ErrAccess, addr, reason, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	w := &wire{Conn: raw}
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	start := time.Now()
	conn, err := amqp.Open(w, d.amqpConfig(password))
	if !stop() && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = w.Close()
		return nil, d.loginError(addr, err, w, time.Since(start))
	}
	k := &connection{Connection: conn, wire: w, addr: addr, alarm: watchAlarm(conn)}
	if err := k.checkCapabilities(); err != nil {
		k.close()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return k, nil
}

func (c Config) password(ctx context.Context) (string, error) {
	if c.Password == nil {
		return "", nil
	}
	password, err := c.Password(ctx)
	if errors.Is(err, sink.ErrAccess) {
		err = sink.Advise(err, accessAdvice)
	}
	return password, err
}

func (c Config) amqpConfig(password string) amqp.Config {
	login := amqp.Authentication(&amqp.PlainAuth{Username: c.User, Password: password})
	if c.User == "" {
		login = &amqp.ExternalAuth{}
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(c.ConnectionName)
	return amqp.Config{
		SASL: []amqp.Authentication{login}, Vhost: c.VHost, Heartbeat: c.Heartbeat, Locale: "en_US", Properties: properties,
		FrameSize: amqp.FrameSizeUnlimited, // the broker's frame_max
	}
}

// loginError returns the error for a connection to addr that could not be opened in the time took.
func (c Config) loginError(addr string, err error, w *wire, took time.Duration) error {
	heard, ended := w.heard()
	closed := errors.Is(ended, io.EOF) || errors.Is(ended, syscall.ECONNRESET)
	if reason := sink.TLSReason(ended, "broker"); reason != "" { // with TLS 1.3 the server checks our certificate after the handshake
		return fmt.Errorf("%w: %s: %s: %w", sink.ErrAccess, addr, reason, ended)
	}
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case ok && e.Server:
		code := errorOf(e.Code)
		if code.class == denied {
			return sink.Advise(fmt.Errorf("%w: %s: virtual host %s: %w", sink.ErrAccess, addr, c.VHost, code), accessAdvice)
		}
		return fmt.Errorf("%s: %w", addr, code)
	case errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("%w: %s: the broker offers no login with %s", sink.ErrAccess, addr, c.mechanism())
	case errors.Is(err, amqp.ErrCredentials) && closed && took >= silentClose:
		return sink.Advise(fmt.Errorf("%w: %s: the broker closed the connection at the login, as it does if the user or password is wrong", sink.ErrAccess, addr), accessAdvice)
	case c.TLS == nil && bytes.Equal(heard, []byte{0x15, 0x03}): // the start of a TLS alert
		return fmt.Errorf("%w: %s: the listener expects TLS", sink.ErrAccess, addr)
	case heard == nil && closed:
		return fmt.Errorf("%s: the broker closed the connection at the first request (does the listener expect TLS?): %w", addr, ended)
	case ended != nil:
		return fmt.Errorf("%s: the connection was lost at the login: %w", addr, ended)
	}
	return fmt.Errorf("%s: %w", addr, err)
}

func (c Config) mechanism() string {
	if c.User == "" {
		return "EXTERNAL"
	}
	return "PLAIN"
}

// checkCapabilities returns an error if the broker lacks an extension of AMQP that the Writer needs.
func (k *connection) checkCapabilities() error {
	capabilities, _ := k.Properties["capabilities"].(amqp.Table)
	for _, name := range []string{"publisher_confirms", "basic.nack"} {
		if has, _ := capabilities[name].(bool); !has {
			return fmt.Errorf("%w: the broker does not offer %s; RabbitMQ does", sink.ErrAccess, name)
		}
	}
	return nil
}

// close ends the connection in an orderly way if the broker responds within closeWait.
func (k *connection) close() {
	late := time.AfterFunc(closeWait, func() { _ = k.wire.Close() }) // the heartbeats of the library move its own deadline
	defer late.Stop()
	_ = k.Close()
	_ = k.wire.Close()
}
