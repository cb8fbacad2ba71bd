package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// receiverLimit is the maximum size of a payload that a receiver accepts.
const receiverLimit = 20_000

// A receiver is a server that stores events. It knows the destinations that were created.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	paths  map[string][]sink.StoredRecord
	fault  *fault // nil: none
	names  int
	served int // number of POSTs
}

// A fault is what a receiver does with a POST.
type fault struct {
	before int           // status, without storing the event; 0: store it; -1: break the connection
	after  int           // status, after storing the event; 0: 204; -1: break the connection
	header http.Header   // of the response
	hold   chan struct{} // closed when responses may leave; nil: at once
	down   bool          // nobody listens
	met    chan struct{}
	once   sync.Once
	early  atomic.Int32 // number of requests that are not the meeting yet
}

func (f *fault) meet() {
	if f.early.Add(-1) < 0 {
		f.once.Do(func() { close(f.met) })
	}
}

// newReceiver starts a server with HTTP/1.1, or with TLS and HTTP/2.
func newReceiver(tb testing.TB, encrypted bool) *receiver {
	tb.Helper()
	r := &receiver{paths: make(map[string][]sink.StoredRecord)}
	r.Server = httptest.NewUnstartedServer(r)
	if encrypted {
		r.EnableHTTP2 = true
		r.StartTLS()
	} else {
		r.Start()
	}
	tb.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/in/")
	r.mu.Lock()
	_, known := r.paths[path]
	f := r.fault
	if req.Method == http.MethodPost {
		r.served++
	}
	r.mu.Unlock()
	switch {
	case path == "/in":
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case !known:
		http.Error(w, "s3cr3t: nothing here", http.StatusNotFound)
		return
	case req.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	rec, err := readEvent(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(rec.Value) > receiverLimit {
		http.Error(w, "s3cr3t: too large", http.StatusRequestEntityTooLarge)
		return
	}
	if f == nil {
		r.store(path, rec)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	defer f.meet()
	maps.Copy(w.Header(), f.header)
	if f.before != 0 {
		respond(w, f.before)
		return
	}
	r.store(path, rec)
	if f.hold != nil {
		f.meet()
		select {
		case <-f.hold:
		case <-req.Context().Done():
			return
		}
	}
	respond(w, f.after)
}

func respond(w http.ResponseWriter, code int) {
	switch code {
	case -1:
		panic(http.ErrAbortHandler)
	case 0:
		code = http.StatusNoContent
	}
	w.WriteHeader(code)
	if code != http.StatusNoContent {
		fmt.Fprint(w, "s3cr3t: "+strings.Repeat("x", 1000))
	}
}

func (r *receiver) store(path string, rec *sink.StoredRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Offset = int64(len(r.paths[path]))
	r.paths[path] = append(r.paths[path], *rec)
}

// create adds an empty destination.
func (r *receiver) create(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths[path] = []sink.StoredRecord{}
}

// events returns what a destination has.
func (r *receiver) events(path string) []sink.StoredRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.paths[path])
}

// readEvent makes a record of a request.
func readEvent(req *http.Request) (*sink.StoredRecord, error) {
	decode := func(text string) []byte {
		plain, err := url.PathUnescape(text)
		if err != nil {
			panic(err)
		}
		return []byte(plain)
	}
	at, err := time.Parse(time.RFC3339, req.Header.Get("ce-time"))
	if err != nil || req.Header.Get("ce-specversion") != "1.0" || req.Header.Get("ce-source") == "" || req.Header.Get("ce-type") == "" {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	rec := &sink.StoredRecord{Record: sink.Record{Timestamp: at}}
	rec.Headers = []sink.Header{{Key: idHeader, Value: decode(req.Header.Get("ce-id"))}}
	if subject, ok := req.Header["Ce-Subject"]; ok {
		rec.Key = decode(subject[0])
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if _, ok := req.Header["Content-Type"]; ok {
		rec.Value = append([]byte{}, body...)
	}
	var names []string
	for name := range req.Header {
		if strings.HasPrefix(name, headerPrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range req.Header[name] {
			rec.Headers = append(rec.Headers, sink.Header{Key: strings.ToLower(strings.TrimPrefix(name, headerPrefix)), Value: append([]byte{}, decode(v)...)})
		}
	}
	return rec, nil
}

// config returns the configuration for the receiver.
func (r *receiver) config() Config {
	cfg := Config{URL: r.URL + "/in", Dial: r.dial}
	if r.TLS != nil {
		cfg.TLS = func() (*tls.Config, error) { return r.Client().Transport.(*http.Transport).TLSClientConfig, nil }
	}
	return cfg
}

func (r *receiver) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if f := r.present(); f != nil && f.down {
		f.meet()
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (r *receiver) present() *fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// begin starts a fault, and returns a function that ends it.
func (r *receiver) begin(f *fault) (met <-chan struct{}, heal func()) {
	f.met = make(chan struct{})
	r.mu.Lock()
	r.fault = f
	r.mu.Unlock()
	if f.down {
		r.CloseClientConnections()
	}
	return f.met, sync.OnceFunc(func() {
		r.mu.Lock()
		r.fault = nil
		r.mu.Unlock()
		if f.hold != nil {
			close(f.hold)
		}
	})
}

// A subject is a receiver for package sinktest.
type subject struct {
	*receiver

	change func(c *Config)
}

func (s subject) Broker(window int) sink.Broker {
	cfg := s.config()
	cfg.WindowRecords, cfg.CheckMethod = window, http.MethodHead
	if s.change != nil {
		s.change(&cfg)
	}
	return cfg
}

func (s subject) Limits() sinktest.Limits {
	return sinktest.Limits{Slow: !need.Full()}
}

func (s subject) Destination(*testing.T) string {
	s.mu.Lock()
	s.names++
	name := fmt.Sprintf("topic/%d", s.names)
	s.mu.Unlock()
	s.create(name)
	return name
}

func (s subject) Read(_ *testing.T, destination string) []sink.StoredRecord {
	return s.events(destination)
}

func (s subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, bytes.Repeat([]byte{'.'}, receiverLimit)...)
}

func (s subject) Hold() sinktest.Fault {
	return s.strike("responses are withheld", func() *fault { return &fault{hold: make(chan struct{})} })
}

func (s subject) Faults() []sinktest.Fault {
	return []sinktest.Fault{
		s.strike("connections break before the event is stored", func() *fault { return &fault{before: -1} }),
		s.strike("connections break before the response", func() *fault { return &fault{after: -1} }),
		s.strike("nobody listens", func() *fault { return &fault{down: true} }),
		s.strike("the receiver is not available", func() *fault { return &fault{before: http.StatusServiceUnavailable} }),
		s.strike("the receiver fails after it has stored the event", func() *fault { return &fault{after: http.StatusInternalServerError} }),
		s.strike("the receiver limits the rate", func() *fault {
			return &fault{before: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"0"}}}
		}),
		s.strike("the receiver is missing for a while", func() *fault { return &fault{before: http.StatusNotFound} }),
		s.strike("the receiver redirects for a while", func() *fault {
			return &fault{before: http.StatusTemporaryRedirect, header: http.Header{"Location": {"/in/elsewhere"}}}
		}),
	}
}

func (s subject) strike(name string, of func() *fault) sinktest.Fault {
	breaks := (of().before < 0 || of().after < 0) && !s.EnableHTTP2 // with HTTP/2 only the stream breaks
	return sinktest.Fault{Name: name, Breaks: breaks, Begin: func(*testing.T) (<-chan struct{}, func()) {
		f := of()
		if f.before < 0 || f.after < 0 { // a used connection that breaks may count as idle, so wait until new ones have broken
			f.early.Store(sinktest.FaultKeys)
		}
		return s.begin(f)
	}}
}
