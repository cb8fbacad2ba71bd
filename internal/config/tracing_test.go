package config

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/test/kit/tracetest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestTracingEndpoint(t *testing.T) {
	cleanEnviron(t)
	for endpoint, want := range map[string]string{
		"http://collector:4318": "http://collector:4318/v1/traces", "https://c.example.com/": "https://c.example.com/v1/traces",
		"https://c.example.com/otlp/v1/traces": "https://c.example.com/otlp/v1/traces", "http://[::1]:4318": "http://[::1]:4318/v1/traces",
		"${OTLP}": "http://from-env:4318/v1/traces",
	} {
		cfg, err := load(t, fmt.Sprintf("{name: orders, tracing: {endpoint: %q, resource: [a=b=c, d=]}, sink: {kafka: {client_id: relay-7}}}", endpoint), []string{"OTLP=http://from-env:4318"})
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		got, err := cfg.tracing()
		if err != nil || got.URL != want || got.Service != "orders" || got.ClientID != "relay-7" || got.Keys ||
			cmp.Diff([]tracing.Attribute{{Name: "a", Value: "b=c"}, {Name: "d"}}, got.Resource) != "" {
			t.Errorf("%s: %+v, %v", endpoint, got, err)
		}
	}
	for _, endpoint := range []string{"collector:4318", "grpc://collector:4317", "http://", "http://u:" + canary + "@c", "http://c/?key=" + canary, "http://c:port"} {
		if _, err := load(t, fmt.Sprintf("tracing: {endpoint: %q}", endpoint), nil); err == nil || strings.Contains(err.Error(), canary) && !strings.Contains(endpoint, "key=") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	cfg, err := load(t, "name: orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if tracer, err := cfg.Tracer("v1", slog.New(slog.DiscardHandler)); tracer != nil || err != nil {
		t.Errorf("without an endpoint: %v, %v", tracer, err)
	}
}

// Tracing keys without an endpoint are an error. So are TLS keys without TLS.
func TestTracingWithoutEffect(t *testing.T) {
	cleanEnviron(t)
	for doc, key := range map[string]string{
		"{headers: a=b}":                                  "tracing.headers",
		"{tls: {ca_file: a.pem}}":                         "tracing.tls.ca_file",
		"{endpoint: 'http://c', tls: {ca_file: a.pem}}":   "tracing.tls.ca_file",
		"{endpoint: 'https://c', tls: {cert_file: a}}":    "tracing.tls.cert_file",
		"{endpoint: 'https://c', tls: {ca_file: absent}}": "tracing.tls.ca_file",
	} {
		if _, err := load(t, "tracing: "+doc, nil); err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// Headers have the format of OTEL_EXPORTER_OTLP_HEADERS. The headers file is read for each request. Headers are
// never shown.
func TestTracingHeaders(t *testing.T) {
	cleanEnviron(t)
	for text, want := range map[string]http.Header{
		"api-key=" + canary: {"Api-Key": {canary}},
		"a = b%20c ,D=e=f,": {"A": {"b c"}, "D": {"e=f"}},
		"a=1\nb=2\n":        {"A": {"1"}, "B": {"2"}},
		canary:              nil,
		"a b=" + canary:     nil,
		"a=%zz" + canary:    nil,
		"a=" + canary + "%0d%0aX-Injected%3a%20x": nil,
	} {
		cfg, err := Load(Sources{Flags: settings("tracing.endpoint", "http://localhost:4318", "tracing.headers", text)})
		if (err == nil) != (want != nil) || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		got, err := cfg.tracingHeaders()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
		var shown strings.Builder
		if err := cfg.WriteYAML(&shown); err != nil || strings.Contains(shown.String(), canary) || !strings.Contains(shown.String(), "headers: '***'") {
			t.Errorf("%v\n%s", err, shown.String())
		}
	}
	path := file(t, "headers", []byte("api-key=one\n"))
	cfg, err := Load(Sources{Flags: settings("tracing.endpoint", "http://collector.example.com:4318", "tracing.headers_file", path)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.Warnings(), "\n"); !strings.Contains(got, "tracing.headers are not encrypted on the network") {
		t.Errorf("warnings: %s", got)
	}
	for _, want := range []string{"one", "two"} {
		replace(t, path, []byte("api-key="+want))
		if got, err := cfg.tracingHeaders(); err != nil || got.Get("Api-Key") != want {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
	replace(t, path, []byte(canary))
	if got, err := cfg.tracingHeaders(); err == nil || strings.Contains(err.Error(), canary) || isMistake(err) {
		t.Errorf("of a bad file: %v, %v", got, err)
	}
}

// A reload replaces the headers of the configuration. If the endpoint changes too, both need a restart: the headers
// must not go to another receiver.
func TestTracingHeadersAdopted(t *testing.T) {
	loaded := func(endpoint, headers string) *Config {
		t.Helper()
		pairs := []string{"tracing.endpoint", endpoint}
		if headers != "" {
			pairs = append(pairs, "tracing.headers", headers)
		}
		cfg, err := Load(Sources{Flags: settings(pairs...)})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := loaded("http://localhost:4318", "")
	receiver, err := cfg.tracing()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		fresh *Config
		want  Reload
		key   string
	}{
		{loaded("http://localhost:4318", "api-key=one"), Reload{Changed: []string{"tracing.headers"}}, "one"},
		{loaded("http://localhost:4318", "api-key=two"), Reload{Changed: []string{"tracing.headers"}}, "two"},
		{loaded("http://localhost:4319", "api-key=three"), Reload{Restart: []string{"tracing.endpoint", "tracing.headers"}}, "two"},
	} {
		if diff := cmp.Diff(step.want, cfg.Apply(step.fresh)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got, err := receiver.Headers(); err != nil || got.Get("Api-Key") != step.key {
			t.Errorf("%v, %v, want %s", got, err, step.key)
		}
	}
}

// A writerFunc is a function that is an [io.Writer].
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The tracer reaches a receiver with a private certificate, and trusts it only if ca_file contains its issuer.
func TestTracingTLS(t *testing.T) {
	var server *httptest.Server
	r := tracetest.Start(t, func(h http.Handler) *httptest.Server {
		server = httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.StartTLS()
		return server
	})
	ca := file(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	var log strings.Builder
	send := func(pairs ...string) tracing.Stat {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
		defer cancel()
		rejected := writerFunc(func(p []byte) (int, error) {
			n, err := log.Write(p)
			if bytes.Contains(p, []byte("certificate")) {
				cancel() // it would retry for ever
			}
			return n, err
		})
		cfg, err := Load(Sources{Flags: settings(append(pairs, "tracing.endpoint", server.URL, "tracing.headers", "api-key="+canary)...)})
		if err != nil {
			t.Fatal(err)
		}
		tracer, err := cfg.Tracer("v1", slog.New(slog.NewTextHandler(rejected, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := tracer.Start(&tracing.Message{Seq: 1, Topic: "t", Committed: time.Now()}); !ok {
			t.Fatal("no span")
		}
		tracer.End(tracing.Delivery{Seqs: []uint64{1}})
		tracer.Flush(ctx)
		return tracer.Stat()
	}
	if got := send(); got.Exported != 0 || !strings.Contains(log.String(), "certificate") || len(r.Requests()) > 0 {
		t.Errorf("to a receiver with an unknown issuer: %+v\n%s", got, log.String())
	}
	if got := send("tracing.tls.ca_file", ca); got.Exported != 1 || len(r.Requests()) != 1 || r.Requests()[0].Get("Api-Key") != canary {
		t.Errorf("%+v\n%s", got, log.String())
	}
	if strings.Contains(log.String(), canary) {
		t.Errorf("the secret is in the log:\n%s", log.String())
	}
}
