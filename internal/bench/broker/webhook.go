package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

// A receiver is what webhooks go to: the bench itself, at sink.webhook.url.
type receiver struct {
	cfg  webhook.Config
	base *url.URL
}

func newReceiver(cfg webhook.Config) (receiver, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return receiver{}, err
	}
	if base.Scheme != "http" || base.Port() == "" {
		return receiver{}, errors.New("to measure webhooks, the benchmark is their receiver: set sink.webhook.url to http:// and a free port of this machine, or use --own-servers")
	}
	return receiver{cfg, base}, nil
}

// Library implements Broker.
func (r receiver) Library() string { return fmt.Sprintf("net/http, %d connections", r.cfg.Concurrency) }

// List implements measure.Broker. Nothing outlives the process.
func (receiver) List(context.Context) ([]string, error) { return nil, nil }

// DropCommand implements measure.Broker.
func (receiver) DropCommand(string) string { return "nothing to do" }

// Open implements measure.Broker.
func (r receiver) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.base.Host)
	if err != nil {
		return nil, failed("receive webhooks", err, "Check that sink.webhook.url is a free port of this machine.")
	}
	p := &paths{base: strings.TrimSuffix(r.base.Path, "/"), layout: l, open: make(map[string]*webhookStream)}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: measure.ContactTimeout}
	p.serving.Go(func() { _ = p.server.Serve(listener) }) // returns when Close closes the server
	return p, nil
}

// paths are the destinations of a workbench.
type paths struct {
	server  *http.Server
	serving sync.WaitGroup
	base    string
	layout  measure.Layout
	made    int

	mu   sync.Mutex
	open map[string]*webhookStream // by path
}

// Delete implements measure.Destinations.
func (*paths) Delete(context.Context) error { return nil }

// Close implements measure.Destinations.
func (p *paths) Close() {
	_ = p.server.Close()
	p.serving.Wait()
}

// Observe implements measure.Destinations.
func (p *paths) Observe(context.Context) (measure.Stream, error) {
	p.made++
	template := fmt.Sprintf("%s%d.%s", p.layout.Prefix, p.made, route)
	s := &webhookStream{inbox: newInbox(), paths: p, template: template, names: names(template, p.layout.Topics), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range s.names {
		p.open[p.base+"/"+n] = s
	}
	return s, nil
}

// ServeHTTP responds when the record is in the inbox.
func (p *paths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	s := p.open[r.URL.Path]
	p.mu.Unlock()
	if s == nil {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	now := time.Now()
	in := received{at: now, topic: strings.TrimPrefix(r.URL.Path, p.base+"/"), offset: now.UnixNano(), key: []byte(r.Header.Get("Ce-Subject")), value: body}
	select {
	case s.records <- in:
		w.WriteHeader(http.StatusNoContent)
	case <-s.closed:
		http.NotFound(w, r)
	}
}

type webhookStream struct {
	*inbox
	paths    *paths
	template string
	names    []string
	closed   chan struct{}
}

// Names implements measure.Stream.
func (s *webhookStream) Names() []string { return s.names }

// Settings implements measure.Stream.
func (s *webhookStream) Settings() map[string]any { return map[string]any{"outbox.topic": s.template} }

// End implements measure.Stream.
func (s *webhookStream) End(context.Context) (func() bool, error) {
	return func() bool { return len(s.records) == 0 }, nil
}

// Close implements measure.Stream.
func (s *webhookStream) Close(context.Context) error {
	s.paths.mu.Lock()
	defer s.paths.mu.Unlock()
	for _, n := range s.names {
		delete(s.paths.open, s.paths.base+"/"+n)
	}
	close(s.closed)
	return nil
}

// Producer implements Broker. It has as many connections as the relay, and posts the same headers.
func (r receiver) Producer(ctx context.Context) (measure.Producer, error) {
	n := r.cfg.Concurrency
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n, DisableCompression: true}, Timeout: measure.ContactTimeout}
	return newWorkers(n, 1, func(messages []measure.Message) error { return r.post(ctx, client, &messages[0]) }), nil
}

func (r receiver) post(ctx context.Context, client *http.Client, m *measure.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base.JoinPath(m.Topic).String(), bytes.NewReader(m.Payload))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": m.ID, "Ce-Source": "/" + measure.ClientID, "Ce-Type": m.Type, "Ce-Subject": m.Key,
		"Ce-Time": time.Now().UTC().Format(milliseconds), "Idempotency-Key": m.ID, "Content-Type": "application/json",
	} {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the receiver responded with %s", res.Status)
	}
	return nil
}
