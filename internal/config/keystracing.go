package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

// Tracing is where spans go. Without an Endpoint there are none.
type Tracing struct {
	Endpoint    string
	Headers     Secret // of headers or headers_file, whichever is in force
	HeadersFile string
	Resource    []string // name=value
	MessageKey  bool
	TLS         TracingTLS
}

// TracingTLS is the encryption of connections to the receiver of spans.
type TracingTLS struct {
	CAFile   string
	CertFile string
	KeyFile  string
}

const (
	atTracing    = "tracing."
	atTracingTLS = "tracing.tls."

	// tracesPath is where a receiver takes traces if its address does not say it.
	tracesPath = "/v1/traces"
)

func tracingKeys() []key {
	return []key{
		{path: "tracing", kind: section, doc: "Spans of records whose row has a sampled trace context. The context itself is passed on in any case."},
		{
			path: "tracing.endpoint", kind: text, pattern: `^https?://[^\s/@?#]+(/[^\s@?#]*)?$`, rule: "a URL that begins with https:// or http://", example: "http://otel-collector:4318",
			doc: "Receiver of spans: OTLP over HTTP, in binary protobuf. A path of `/v1/traces` is added where there is none. In the file, `${NAME}` is that environment variable. Default: no spans.",
		},
		{path: "tracing.headers", kind: secret, doc: "Headers of each request, such as a key: `name=value,name=value`, values percent-encoded, as in `OTEL_EXPORTER_OTLP_HEADERS`."},
		{path: "tracing.headers_file", kind: text, example: "/run/secrets/otlp-headers", doc: "File that holds the headers. It is read again for each request."},
		{
			path: "tracing.resource", kind: list, pattern: `^[^=\s]+=`, rule: "name=value", example: "[deployment.environment.name=production]",
			doc: "Attributes of the resource, beside `service.name`, which is `name`, and `service.version`.",
		},
		{path: "tracing.message_key", kind: boolean, def: false, doc: "Show record keys in spans, as `messaging.kafka.message.key`."},
		{path: "tracing.tls", kind: section, doc: "Encryption, where `tracing.endpoint` begins with `https`."},
		{path: "tracing.tls.ca_file", kind: text, example: "/etc/outbox-cdc/otlp-ca.pem", doc: "Certificates to trust (PEM). Default: the system's."},
		{path: "tracing.tls.cert_file", kind: text, doc: "Client certificate (PEM), with `key_file`. Read again for each connection."},
		{path: "tracing.tls.key_file", kind: text, doc: "Key of the client certificate (PEM)."},
	}
}

// tracing returns where spans go, nil for nowhere. Program and version are left to the caller.
func (c *Config) tracing() (*tracing.Config, error) {
	t := c.Tracing
	if t.Endpoint == "" {
		return nil, c.withoutEffect(tracingKeys(), "tracing.endpoint is not set")
	}
	target, err := url.Parse(t.Endpoint)
	if err != nil {
		return nil, c.invalid(atTracing+"endpoint", "found %q; it cannot be read as a URL", t.Endpoint)
	}
	if target.Path == "" || target.Path == "/" {
		target.Path = tracesPath
	}
	cfg := &tracing.Config{URL: target.String(), Service: c.name(), ClientID: c.clientID(), Keys: t.MessageKey}
	for _, text := range t.Resource {
		name, value, _ := strings.Cut(text, "=")
		cfg.Resource = append(cfg.Resource, tracing.Attribute{Name: name, Value: value})
	}
	if _, err := parseHeaders(t.Headers); err != nil {
		return nil, c.invalid(atTracing+"headers", "%v", err)
	}
	cfg.Headers = c.tracingHeaders
	if target.Scheme != "https" {
		return cfg, c.withoutEffect(tracingTLSKeys(), "tracing.endpoint does not begin with https")
	}
	cfg.TLS, err = c.tracingTLS()
	if err == nil {
		rereadTLS(cfg.TLS, func() (*tls.Config, error) {
			fresh, err := c.tracingTLS()
			return fresh, later(err)
		})
	}
	return cfg, err
}

// tracingTLSKeys are those of tracing.tls.
func tracingTLSKeys() []key {
	var out []key
	for _, k := range tracingKeys() {
		if strings.HasPrefix(k.path, atTracingTLS) {
			out = append(out, k)
		}
	}
	return out
}

func (c *Config) tracingTLS() (*tls.Config, error) {
	t := c.Tracing.TLS
	return c.certificates(atTracingTLS, t.CAFile, t.CertFile, t.KeyFile)
}

// withoutEffect is the error about the first of some keys that somebody has given, because of why.
// One that has a default says nothing by itself.
func (c *Config) withoutEffect(keys []key, why string) error {
	for _, k := range keys {
		if k.kind != section && k.def == nil && c.isSet(k.path) {
			return c.invalid(k.path, "has no effect: %s", why)
		}
	}
	return nil
}

// tracingHeaders returns the headers of a request, as they are now.
func (c *Config) tracingHeaders() (http.Header, error) {
	c = c.now()
	text, err := c.readSecret(atTracing+"headers", c.Tracing.Headers)
	if err != nil {
		return nil, later(err)
	}
	headers, err := parseHeaders(text)
	if err != nil {
		return nil, fmt.Errorf("%sheaders: %w", atTracing, err)
	}
	return headers, nil
}

// headerName is what the name of a header may be: a token of RFC 9110, 5.6.2.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// parseHeaders reads headers as OTEL_EXPORTER_OTLP_HEADERS has them; lines separate them as well
// as commas do. Its error shows nothing of them.
func parseHeaders(text Secret) (http.Header, error) {
	headers := make(http.Header)
	for _, item := range strings.FieldsFunc(string(text), func(r rune) bool { return r == ',' || r == '\n' }) {
		name, value, ok := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !headerName.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, errors.New("it must be name=value, more of them separated by commas, values percent-encoded")
		}
		headers.Set(name, value)
	}
	return headers, nil
}

func (c *Config) tracingWarnings() []string {
	u, err := url.Parse(c.Tracing.Endpoint)
	if err != nil || u.Scheme != "http" || c.Tracing.Headers == "" || isThisMachine(u.Hostname()) {
		return nil
	}
	return []string{"the headers for the receiver of spans cross the network unencrypted: tracing.endpoint is not https"}
}
