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

const (
	atTracing    = "tracing."
	atTracingTLS = "tracing.tls."

	// tracesPath is the default path of an OTLP endpoint.
	tracesPath = "/v1/traces"
)

// tracing returns the settings of the exporter of spans, nil if there is none. The caller sets the version.
func (c *Config) tracing() (*tracing.Config, error) {
	t := c.Tracing
	if t.Endpoint == "" {
		return nil, c.withoutEffect(atTracing, "tracing.endpoint is not set")
	}
	target, err := url.Parse(t.Endpoint)
	if err != nil {
		return nil, c.invalid(atTracing+"endpoint", "found %q; it is not a URL", t.Endpoint)
	}
	if target.Path == "" || target.Path == "/" {
		target.Path = tracesPath
	}
	cfg := &tracing.Config{URL: target.String(), Service: c.name(), System: c.broker().system, ClientID: c.clientID(), Keys: t.MessageKey}
	for _, text := range t.Resource {
		name, value, _ := strings.Cut(text, "=")
		cfg.Resource = append(cfg.Resource, tracing.Attribute{Name: name, Value: value})
	}
	if _, err := parseHeaders(string(t.Headers)); err != nil {
		return nil, c.invalid(atTracing+"headers", "%v", err)
	}
	cfg.Headers = c.tracingHeaders
	if target.Scheme != "https" {
		return cfg, c.withoutEffect(atTracingTLS, "tracing.endpoint does not begin with https")
	}
	cfg.TLS, err = c.certificates(atTracingTLS)
	if err == nil {
		rereadTLS(cfg.TLS, func() (*tls.Config, error) {
			fresh, err := c.certificates(atTracingTLS)
			return fresh, later(err)
		})
	}
	return cfg, err
}

// tracingHeaders returns the current headers of a request.
func (c *Config) tracingHeaders() (http.Header, error) {
	text, err := c.currentSecret(atTracing + "headers")
	if err != nil {
		return nil, err
	}
	headers, err := parseHeaders(text)
	if err != nil {
		return nil, fmt.Errorf("%sheaders: %w", atTracing, err)
	}
	return headers, nil
}

// headerName matches the name of a header: a token of RFC 9110, section 5.6.2.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// parseHeaders parses headers in the format of OTEL_EXPORTER_OTLP_HEADERS. They may also be on separate lines. The error
// contains nothing of them.
func parseHeaders(text string) (http.Header, error) {
	headers := make(http.Header)
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		name, value, ok := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !headerName.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, errors.New("must be name=value pairs separated by commas, with percent-encoded values")
		}
		headers.Set(name, value)
	}
	return headers, nil
}
