package redisstreams

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

const (
	defaultWaitTimeout = 2 * time.Second

	// requestTimeout limits the time without a response to a request, in addition to Wait.Timeout. A server may write to a
	// slow disk meanwhile.
	requestTimeout = 15 * time.Second
	dialTimeout    = 5 * time.Second

	// idleLimit is the time after which a connection is not used again. A server (setting timeout) or a network may have closed it.
	idleLimit = 20 * time.Second

	requestRecords = 500
	requestBytes   = 256 << 10

	// defaultEntryBytes is proto-max-bulk-len of a server with default settings.
	defaultEntryBytes = 512 << 20
)

// Config configures the connection to Redis. It implements [sink.Broker]. Every field but Addrs may be zero. The oldest
// supported version of Redis is 6.2.
type Config struct {
	// Addrs are host:port: of one server, of Sentinels if Sentinel is set, or of nodes if Cluster is true. One of several
	// that responds is enough.
	Addrs []string

	// Sentinel makes the client ask Sentinels for the address of the primary.
	Sentinel *Sentinel

	// Cluster makes the client use a cluster. A stream is in one of its slots.
	Cluster bool

	// Database is the number of the database. A cluster has only 0.
	Database int

	// Credentials returns the user name and the password. It is called for each connection, from any goroutine. An empty
	// user name means the user default. An error that wraps sink.ErrAccess counts as a rejected login, any other error as
	// an unreachable server. Nil: no login.
	Credentials func(ctx context.Context) (user, password string, err error)

	// TLS returns the TLS configuration of a connection. It is called for each connection, from any goroutine, so that
	// certificates may be rotated. An empty ServerName means the host of the server. Nil: plaintext.
	TLS func() (*tls.Config, error)

	// Dial makes network connections, below TLS, like net.Dialer.DialContext. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// CreateStreams makes the first record of a stream create it. Otherwise records wait until somebody creates the stream.
	CreateStreams bool

	// Trim removes old entries from streams when new ones are appended. Zero: never.
	Trim Trim

	// Wait makes the Writer wait for replicas. Zero: it does not.
	Wait Wait

	// MaxEntryBytes is the maximum size of a record. Larger records are rejected without sending them. Zero means
	// proto-max-bulk-len of the server, or 512 MiB if the user may not read that.
	MaxEntryBytes int

	// WindowBytes and WindowRecords limit the unacknowledged records. Zero means 4 MiB and 50,000.
	WindowBytes, WindowRecords int
}

// A Trim says which entries of a stream are removed. Redis removes whole nodes of its tree, so it keeps some more. Redis does
// not know which entries consumers still need: choose a limit that is never reached during an outage of a consumer. A
// record whose entry was removed is not recognized as a duplicate when it is sent again.
type Trim struct {
	// MaxLen is the number of entries that are kept. Zero: all.
	MaxLen int64

	// MaxWAL removes entries whose commit LSN is that many bytes of WAL behind the LSN of a new one. If the stream moves to a
	// server with far higher LSNs, it removes all entries of the old one. Zero: none.
	MaxWAL uint64

	// Keep are streams that are never trimmed, such as that of dead letters.
	Keep []string
}

// A Wait is how many replicas must have received a record before it is acknowledged (the command WAIT).
type Wait struct {
	Replicas int
	Timeout  time.Duration // after which the records are sent again; zero means 2 s
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	switch {
	case len(c.Addrs) == 0:
		return errors.New("sink: Addrs is empty")
	case c.Sentinel != nil && c.Sentinel.Primary == "":
		return errors.New("sink: Sentinel.Primary is empty")
	case c.Sentinel != nil && c.Cluster:
		return errors.New("sink: Sentinel and Cluster exclude each other")
	case c.Cluster && c.Database != 0:
		return errors.New("sink: a cluster has no Database but 0")
	case c.Trim.MaxLen > 0 && c.Trim.MaxWAL > 0:
		return errors.New("sink: Trim.MaxLen and Trim.MaxWAL exclude each other")
	case c.Sentinel == nil && !c.Cluster && len(c.Addrs) > 1:
		return errors.New("sink: several Addrs need Sentinel or Cluster")
	}
	return sink.CheckNotNegative(c)
}

// String returns the servers, for messages.
func (c Config) String() string {
	where := strings.Join(c.Addrs, ", ")
	switch {
	case c.Sentinel != nil:
		return fmt.Sprintf("Redis primary %s of Sentinel at %s", c.Sentinel.Primary, where)
	case c.Cluster:
		return "Redis Cluster at " + where
	}
	return "Redis at " + where
}

func (c Config) withDefaults() Config {
	c.Wait.Timeout = cmp.Or(c.Wait.Timeout, defaultWaitTimeout)
	return c
}
