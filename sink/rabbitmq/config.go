package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// DefaultWindowRecords is the default of Config.WindowRecords.
const DefaultWindowRecords = 10_000

const (
	defaultHeartbeat = 10 * time.Second

	// outstanding is the number of messages without a confirm. More make the broker no faster.
	outstanding = 2048
)

// Config configures the connection to a RabbitMQ server or cluster, and its Writers. It implements [sink.Broker]. Every
// field but Servers may be zero.
type Config struct {
	// Servers are the servers of a cluster as host:port. A connection is made to the first that responds, starting with
	// the one after the last. If a server does not respond in a second, the next one is attempted as well.
	Servers []string

	// VHost is the virtual host. Empty means /.
	VHost string

	// User is the name of the user, who logs in with the mechanism PLAIN. Empty means that the certificate of TLS
	// identifies the user, with the mechanism EXTERNAL.
	User string

	// Password returns the current password or OAuth 2 token of User, for which it is required. It is called for each
	// connection, from any goroutine, and must return when ctx ends. An error that wraps sink.ErrAccess counts as a
	// rejected login, any other error as an unreachable broker.
	Password func(ctx context.Context) (string, error)

	// TLS returns the TLS configuration of a connection. It is called for each connection, from any goroutine, so that
	// certificates may be rotated. If it returns an error, the broker counts as unreachable. An empty ServerName means
	// the host of the server. Nil: no TLS.
	TLS func() (*tls.Config, error)

	// Dial makes network connections, below TLS, like net.Dialer.DialContext. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// ConnectionName is the name of connections in the broker's logs and lists. Empty means outbox-cdc.
	ConnectionName string

	// Heartbeat is how often the broker and the client send a heartbeat. Without any byte of the broker for one and a half
	// of it, a connection counts as lost. Zero means 10 s.
	Heartbeat time.Duration

	// Connections is the number of connections of a Writer. The broker uses one or two processor cores for a connection.
	// Zero means 1.
	Connections int

	// MaxMessageBytes is the maximum size of a message's body. Larger records are rejected without sending them. Zero
	// leaves it to the broker's max_message_size.
	MaxMessageBytes int

	// ContentType is the property content_type of messages whose record has no header content-type. Empty: none.
	ContentType string

	// WindowBytes limits the memory of unacknowledged records. It also limits the number of duplicates after a crash.
	// Zero means 4 MiB.
	WindowBytes int

	// WindowRecords limits the number of unacknowledged records. Zero means 10,000.
	WindowRecords int
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if len(c.Servers) == 0 {
		return errors.New("sink: Servers is empty")
	}
	for _, addr := range c.Servers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("sink: Servers has %q, which is not host:port", addr)
		}
	}
	switch {
	case c.User == "" && c.TLS == nil:
		return errors.New("sink: User is empty, and without TLS there is no certificate that identifies the user")
	case c.User != "" && c.Password == nil:
		return errors.New("sink: Password is nil")
	case len(c.VHost) > maxShort:
		return fmt.Errorf("sink: VHost has more than %d bytes", maxShort)
	case len(c.ContentType) > maxShort:
		return fmt.Errorf("sink: ContentType has more than %d bytes", maxShort)
	case c.Heartbeat < 0 || c.Heartbeat > 0 && c.Heartbeat < 2*time.Second:
		return errors.New("sink: Heartbeat is shorter than 2s")
	}
	return sink.CheckNotNegative(c)
}

// String returns the broker with its servers, for messages.
func (c Config) String() string { return "RabbitMQ at " + strings.Join(c.Servers, ", ") }

func (c Config) withDefaults() Config {
	c.VHost = cmp.Or(c.VHost, "/")
	c.ConnectionName = cmp.Or(c.ConnectionName, "outbox-cdc")
	c.Heartbeat = cmp.Or(c.Heartbeat, defaultHeartbeat)
	c.Connections = cmp.Or(c.Connections, 1)
	c.WindowRecords = cmp.Or(c.WindowRecords, DefaultWindowRecords)
	return c
}
