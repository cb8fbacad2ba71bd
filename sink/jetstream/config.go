package jetstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	defaultRequestTimeout = 5 * time.Second
	defaultInboxPrefix    = "_INBOX"
)

// Config configures the connection to NATS servers. It implements [sink.Broker]. Every field but Servers may be zero.
type Config struct {
	// Servers are servers of one cluster, as host:port, nats://host:port or tls://host:port. List all of them: the
	// connection moves to another one when it is lost.
	Servers []string

	// Name is the name of the connection, which servers show. Empty means outbox-cdc.
	Name string

	// Credentials authenticate connections. Nil: no authentication, except a client certificate.
	Credentials *Credentials

	// TLS returns the TLS configuration of a connection. It is called for each connection, from any goroutine, so that
	// certificates may be rotated. If it returns an error, the servers count as unreachable. An empty ServerName means
	// the host of the server. Nil: plaintext, unless the server requires TLS.
	TLS func() (*tls.Config, error)

	// InboxPrefix is the prefix of the subjects to which servers respond. Empty means _INBOX.
	InboxPrefix string

	// RequestTimeout is the time in which a server responds to a request. A record without a response is sent
	// again. Zero means 5 s.
	RequestTimeout time.Duration

	// BucketReplicas is the number of replicas of a position store that is created. Zero means 3 in a cluster, otherwise 1.
	BucketReplicas int

	// WindowBytes limits the memory of unacknowledged records. It also limits the number of records that are sent
	// again after a crash. Zero means 4 MiB.
	WindowBytes int

	// WindowRecords limits the number of unacknowledged records. Zero means 50,000.
	WindowRecords int

	// Dial makes network connections, below TLS, like net.Dialer.DialContext. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Credentials authenticate connections. Exactly one of Password, Token, Seed and File is set. They are called for each
// connection, from any goroutine, so that secrets may be rotated, and must return when ctx ends. An error that wraps
// sink.ErrAccess counts as a rejected login, any other error as an unreachable server.
type Credentials struct {
	User     string                                             // only with Password
	Password func(ctx context.Context) (string, error)          // of User
	Token    func(ctx context.Context) (string, error)          // for servers with a token
	Seed     func(ctx context.Context) (string, error)          // the seed of an nkey
	File     func(ctx context.Context) (file []byte, err error) // the content of a .creds file, with a JWT and a seed
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	if len(c.Servers) == 0 {
		return errors.New("sink: Servers is empty")
	}
	for _, s := range c.Servers {
		if _, err := parseServer(s); err != nil {
			return err
		}
	}
	if strings.ContainsAny(c.InboxPrefix, "*> \t\r\n") || strings.HasSuffix(c.InboxPrefix, ".") {
		return fmt.Errorf("sink: InboxPrefix %q is not a subject", c.InboxPrefix)
	}
	if err := sink.CheckNotNegative(c); err != nil {
		return err
	}
	return c.Credentials.validate()
}

func (c *Credentials) validate() error {
	if c == nil {
		return nil
	}
	kinds := 0
	for _, set := range []bool{c.Password != nil, c.Token != nil, c.Seed != nil, c.File != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("sink: Credentials need exactly one of Password, Token, Seed and File")
	case (c.User == "") != (c.Password == nil):
		return errors.New("sink: Credentials.User and Credentials.Password belong together")
	}
	return nil
}

// parseServer returns the URL of a server.
func parseServer(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil: // its text may have a password
		return nil, errors.New("sink: Servers has an address that is not host:port")
	case u.User != nil:
		return nil, fmt.Errorf("sink: Servers: %s has a user or a token in the URL, which belong into Credentials", u.Host)
	case u.Scheme != "nats" && u.Scheme != "tls":
		return nil, fmt.Errorf("sink: Servers: %s://%s is neither nats:// nor tls://", u.Scheme, u.Host)
	case u.Hostname() == "" || u.Path != "" || u.RawQuery != "":
		return nil, fmt.Errorf("sink: Servers: %q is not host:port", u.Host)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	return u, nil
}

// hosts returns the servers as host:port.
func (c Config) hosts() []string {
	var hosts []string
	for _, s := range c.Servers {
		if u, err := parseServer(s); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

// String returns the servers, for messages.
func (c Config) String() string { return "NATS at " + strings.Join(c.hosts(), ", ") }

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "outbox-cdc")
	c.InboxPrefix = cmp.Or(c.InboxPrefix, defaultInboxPrefix)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, defaultRequestTimeout)
	return c
}
