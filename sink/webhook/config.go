package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	defaultConcurrency    = 64
	defaultTimeout        = 30 * time.Second
	defaultConnectTimeout = 10 * time.Second
	defaultContentType    = "application/json"
	defaultSource         = "/outbox-cdc"
	defaultType           = "outbox.event"
)

// Config configures the receivers of webhooks. It implements [sink.Broker]. One of URL and Origins is required; every
// other field may be zero.
type Config struct {
	// URL is the base URL: a destination is a path below it, such as orders/created. The relay escapes it, so that a row
	// cannot choose another host, a query, or a path that is not below URL.
	URL string

	// Origins are the servers that a destination may name if it is a complete URL: https://hooks.example.com,
	// https://hooks.example.com:8443, https://*.example.com or https://*. Without them, no destination is a complete URL.
	Origins []string

	// Source is the attribute source of CloudEvents, a URI reference that identifies the relay. Empty means /outbox-cdc.
	Source string

	// Type is the attribute type of records without an event type. Empty means outbox.event.
	Type string

	// ContentType is the media type of payloads, unless a record has a header content-type. Empty means application/json.
	ContentType string

	// Secrets returns the signing secrets (Standard Webhooks), the current one first. Each is base64 of 24 to 64 bytes,
	// with or without the prefix whsec_. The relay signs with each of them, so that receivers can change to a new one. It
	// asks at most once a second. Nil: requests are not signed.
	Secrets func() ([]string, error)

	// Authorization returns the header Authorization, such as "Bearer " and a token. It is asked at most once a second, and
	// after a response with status 401. Only servers that URL or Origins name without a wildcard get it. Nil: none.
	Authorization func(ctx context.Context) (string, error)

	// TLS returns the TLS configuration of a connection. It is called for each connection, from any goroutine, so that
	// certificates may be rotated. If it returns an error, the receiver counts as unreachable. Nil: the certificates of
	// the system.
	TLS func() (*tls.Config, error)

	// Proxy returns the proxy for a request, like [http.ProxyFromEnvironment]. Nil: no proxy.
	Proxy func(*http.Request) (*url.URL, error)

	// RefusePrivate refuses connections to addresses that are not public: private, loopback, link-local and others that are
	// reserved. It is checked for the address of each connection, after the name was resolved. It excludes Proxy.
	RefusePrivate bool

	// Dial makes network connections, below TLS, like net.Dialer.DialContext. It excludes RefusePrivate. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Timeout limits a request from its beginning to the end of the response. Zero means 30 s.
	Timeout time.Duration

	// ConnectTimeout limits a connection with its TLS handshake. Zero means 10 s.
	ConnectTimeout time.Duration

	// Concurrency is the maximum number of requests to a server at the same time. Zero means 64.
	Concurrency int

	// MaxPayloadBytes is the maximum size of a payload. Larger records are rejected without sending them. Zero: the
	// receiver decides, with status 413.
	MaxPayloadBytes int

	// CheckMethod is the method with which CheckDestinations asks whether a destination exists: HEAD or OPTIONS. A response
	// with status 404 or 410 means that it does not. Empty: it does not ask, because many receivers know only POST.
	CheckMethod string

	// WindowBytes limits the memory of unacknowledged records. Zero means 4 MiB.
	WindowBytes int

	// WindowRecords limits the number of unacknowledged records. Zero means 50,000.
	WindowRecords int
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	c = c.withDefaults()
	if _, err := newAddresses(c); err != nil {
		return err
	}
	if u, err := url.Parse(c.Source); err != nil || u.String() == "" {
		return errors.New("sink: Source is not a URI reference")
	}
	if !isAttribute(c.Type) {
		return errors.New("sink: Type has control characters")
	}
	if !isContentType(c.ContentType) {
		return fmt.Errorf("sink: ContentType %q is not a media type for a payload", c.ContentType)
	}
	if c.CheckMethod != "" && c.CheckMethod != http.MethodHead && c.CheckMethod != http.MethodOptions {
		return fmt.Errorf("sink: CheckMethod %q is not HEAD or OPTIONS", c.CheckMethod)
	}
	switch {
	case c.RefusePrivate && c.Proxy != nil:
		return errors.New("sink: RefusePrivate excludes Proxy, because a proxy resolves the names")
	case c.RefusePrivate && c.Dial != nil:
		return errors.New("sink: RefusePrivate excludes Dial")
	}
	return sink.CheckNotNegative(c)
}

// String returns the receivers, for messages.
func (c Config) String() string {
	servers := c.Origins
	if c.URL != "" {
		servers = append([]string{c.URL}, servers...)
	}
	return "webhooks at " + strings.Join(servers, ", ")
}

func (c Config) withDefaults() Config {
	c.Source = cmp.Or(c.Source, defaultSource)
	c.Type = cmp.Or(c.Type, defaultType)
	c.ContentType = cmp.Or(c.ContentType, defaultContentType)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	return c
}
