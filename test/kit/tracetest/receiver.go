// Package tracetest provides an OTLP/HTTP receiver for tests. It decodes spans with the generated types
// of the OpenTelemetry project.
package tracetest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Span is a received span. Ids are hexadecimal; attribute values are strings, int64s and bools.
type Span struct {
	TraceID, SpanID, Parent string
	State, Name             string
	Kind                    string
	Flags                   uint32
	Start, End              time.Time
	Attributes, Resource    map[string]any
	Event                   string // name of the span's only event
	EventAt                 time.Time
	Failed                  bool
	Status                  string // the message of the status
	Scope, Schema           string
}

// A Receiver collects spans.
type Receiver struct {
	URL string // includes the path /v1/traces

	mu      sync.Mutex
	changed chan struct{} // closed at the next request
	answer  http.HandlerFunc
	spans   []Span
	headers []http.Header
}

// Start starts a Receiver and stops it when the test ends. start is a function such as
// [httptest.NewServer] or [httptest.NewTLSServer].
func Start(tb testing.TB, start func(http.Handler) *httptest.Server) *Receiver {
	tb.Helper()
	r := &Receiver{changed: make(chan struct{})}
	server := start(http.HandlerFunc(r.serve))
	tb.Cleanup(server.Close)
	r.URL = server.URL + "/v1/traces"
	return r
}

// Answer makes handler respond to all requests. The Receiver then discards the spans of these requests. A
// nil handler restores the normal behavior.
func (r *Receiver) Answer(handler http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = handler
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.headers = append(r.headers, req.Header)
	answer := r.answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.changed)
		r.changed = make(chan struct{})
	}()
	if answer != nil {
		answer(w, req)
		return
	}
	body, err := io.ReadAll(req.Body)
	var message collector.ExportTraceServiceRequest
	switch {
	case req.Method != http.MethodPost || req.URL.Path != "/v1/traces":
		http.NotFound(w, req)
		return
	case req.Header.Get("Content-Type") != "application/x-protobuf":
		http.Error(w, "not protobuf", http.StatusUnsupportedMediaType)
		return
	case err != nil || proto.Unmarshal(body, &message) != nil || len(message.ProtoReflect().GetUnknown()) > 0:
		http.Error(w, "not a request", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range message.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, read(s, of, scope))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func read(s *trace.Span, of *trace.ResourceSpans, scope *trace.ScopeSpans) Span {
	out := Span{
		TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		State: s.GetTraceState(), Name: s.GetName(), Kind: s.GetKind().String(), Flags: s.GetFlags(),
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: attributes(s.GetAttributes()), Resource: attributes(of.GetResource().GetAttributes()),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Status: s.GetStatus().GetMessage(),
		Scope: scope.GetScope().GetName() + " " + scope.GetScope().GetVersion(), Schema: scope.GetSchemaUrl(),
	}
	if events := s.GetEvents(); len(events) == 1 {
		out.Event, out.EventAt = events[0].GetName(), time.Unix(0, int64(events[0].GetTimeUnixNano()))
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]any {
	out := make(map[string]any)
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = v.IntValue
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = v.BoolValue
		}
	}
	return out
}

// Spans returns the spans received so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Span(nil), r.spans...)
}

// Requests returns the headers of every request so far.
func (r *Receiver) Requests() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]http.Header(nil), r.headers...)
}

// Wait waits until ok returns true. It calls ok after each request.
func (r *Receiver) Wait(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	limit := time.After(wait.Patience())
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			tb.Fatalf("waited %v for %s; received %d spans", wait.Patience(), what, len(r.Spans()))
		}
	}
}

// Received waits until n spans have been received and returns all spans.
func (r *Receiver) Received(tb testing.TB, n int) []Span {
	tb.Helper()
	r.Wait(tb, fmt.Sprint(n, " spans"), func() bool { return len(r.Spans()) >= n })
	return r.Spans()
}
