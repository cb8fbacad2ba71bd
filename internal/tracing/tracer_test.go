package tracing

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/tracetest"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func config(url string) Config {
	return Config{
		System: "kafka",
		URL:    url, Service: "orders", Version: "v1.2.3", ClientID: "orders-relay", Keys: true,
		Resource: []Attribute{{"deployment.environment.name", "test"}, {"service.version", "replaced"}},
	}
}

// message returns a message whose parent is in a sampled trace.
func message(tb testing.TB, seq uint64) *Message {
	tb.Helper()
	c, ok := ParseContext([]byte(parent))
	if !ok {
		tb.Fatal("no context")
	}
	return &Message{
		Seq: seq, Topic: "outbox.event.order", ID: []byte("0191f7a2"), Key: []byte("order-7"), Size: 12,
		CommitLSN: 0x16_B374D848, Committed: time.Now().Add(-time.Second), Parent: c, State: []byte("congo=t61rcWkgMzE"),
	}
}

// exported starts the span of m, ends it with end, and returns what the receiver gets.
func exported(t *testing.T, m *Message, end func(*Tracer)) (own Context, got tracetest.Span) {
	t.Helper()
	r := tracetest.Start(t, httptest.NewServer)
	tracer := New(config(r.URL), discard())
	own, ok := tracer.Start(m)
	if !ok {
		t.Fatal("no span")
	}
	end(tracer)
	if left := tracer.Flush(t.Context()); left > 0 {
		t.Fatalf("%d spans are left", left)
	}
	spans := r.Received(t, 1)
	if len(spans) != 1 || tracer.Stat() != (Stat{Exported: 1}) {
		t.Fatalf("%d spans, %+v", len(spans), tracer.Stat())
	}
	return own, spans[0]
}

// TestSpan checks a span with every attribute, decoded with the types that OpenTelemetry generates.
func TestSpan(t *testing.T) {
	m := message(t, 7)
	before := time.Now()
	own, got := exported(t, m, func(tracer *Tracer) {
		if id := tracer.End(Delivery{Partition: 3, Offset: 40, Broker: "kafka-1:9092", Seqs: []uint64{6, 7, 8}}); id != parent[3:35] {
			t.Errorf("the example is %q", id)
		}
	})
	if text := string(own.AppendText(nil)); text != "00-"+got.TraceID+"-"+got.SpanID+"-01" {
		t.Errorf("the record names %s, and the span is %s of %s", text, got.SpanID, got.TraceID)
	}
	if !got.Start.Equal(m.Committed.Round(0)) || got.EventAt.Before(before) || got.End.Before(got.EventAt) || got.End.After(time.Now()) {
		t.Errorf("from %s by %s to %s", got.Start, got.EventAt, got.End)
	}
	got.Start, got.EventAt, got.End = time.Time{}, time.Time{}, time.Time{}
	if diff := cmp.Diff(tracetest.Span{
		TraceID: parent[3:35], SpanID: got.SpanID, Parent: parent[36:52], State: "congo=t61rcWkgMzE",
		Name: "send outbox.event.order", Kind: "SPAN_KIND_PRODUCER", Flags: 0x301,
		Attributes: map[string]any{
			"messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "send", "messaging.client.id": "orders-relay",
			"messaging.destination.name": "outbox.event.order", "messaging.destination.partition.id": "3", "messaging.kafka.offset": int64(41),
			"messaging.message.id": "0191f7a2", "messaging.kafka.message.key": "order-7", "messaging.message.body.size": int64(12),
			"server.address": "kafka-1", "server.port": int64(9092), "outbox_cdc.commit_lsn": "16/B374D848",
		},
		Resource: map[string]any{"service.name": "orders", "service.version": "replaced", "deployment.environment.name": "test"},
		Event:    "handed to producer", Scope: scopeName + " v1.2.3", Schema: schemaURL,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A span fails if Kafka rejects its record, or if its session ends.
func TestFailedSpan(t *testing.T) {
	for _, end := range []func(*Tracer){
		func(tracer *Tracer) { tracer.Fail(7, "MESSAGE_TOO_LARGE", "a megabyte too much") },
		func(tracer *Tracer) { tracer.Abandon("MESSAGE_TOO_LARGE", "a megabyte too much") },
	} {
		m := message(t, 7)
		m.Key, m.Tombstone, m.Size, m.ID, m.State = nil, true, 0, bytes.Repeat([]byte("x"), maxText+1), []byte("\xff")
		m.Committed = time.Now().Add(time.Hour) // from a clock that is wrong
		_, got := exported(t, m, end)
		if !got.Failed || got.Status != "a megabyte too much" || got.State != "" || got.End.Before(got.Start) || got.Start.After(time.Now()) {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff(map[string]any{
			"messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "send", "messaging.client.id": "orders-relay",
			"messaging.destination.name": "outbox.event.order", "messaging.message.body.size": int64(0),
			"messaging.kafka.message.tombstone": true, "outbox_cdc.commit_lsn": "16/B374D848", "error.type": "MESSAGE_TOO_LARGE",
		}, got.Attributes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The number of spans is limited. A record without a span keeps its trace context. After an export, new spans can
// start.
func TestSpansAreBounded(t *testing.T) {
	r := tracetest.Start(t, httptest.NewServer)
	tracer := New(config(r.URL), discard())
	var seqs []uint64
	for seq := range uint64(maxSpans) {
		if _, ok := tracer.Start(message(t, seq)); !ok {
			t.Fatalf("no span for record %d", seq)
		}
		seqs = append(seqs, seq)
	}
	if c, ok := tracer.Start(message(t, maxSpans)); ok || c != (Context{}) {
		t.Error("one too many")
	}
	tracer.End(Delivery{Offset: -1, Seqs: seqs[:maxSpans/2]})
	if _, ok := tracer.Start(message(t, maxSpans)); ok {
		t.Error("a span above the limit before the others are exported")
	}
	if left := tracer.Flush(t.Context()); left != maxSpans/2 {
		t.Errorf("%d are left", left)
	}
	if _, ok := tracer.Start(message(t, maxSpans)); !ok {
		t.Error("no room after the export")
	}
	if got, want := tracer.Stat(), (Stat{Exported: maxSpans / 2, Dropped: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	ids := make(map[string]bool)
	for _, s := range r.Received(t, maxSpans/2) {
		ids[s.SpanID] = true
		if _, ok := s.Attributes["messaging.kafka.offset"]; ok {
			t.Error("the span has an unknown offset")
		}
	}
	if len(ids) != maxSpans/2 || len(r.Requests()) != maxSpans/2/batchSize {
		t.Errorf("%d ids in %d requests", len(ids), len(r.Requests()))
	}
}

// Records are sent, acknowledged and abandoned concurrently, while the exporter runs. Every span is counted once.
func TestConcurrency(t *testing.T) {
	r := tracetest.Start(t, httptest.NewServer)
	tracer := New(config(r.URL), discard())
	done := runTracer(t, tracer)
	const senders, each = 4, 2000
	var wg sync.WaitGroup
	var begun sync.Map
	for sender := range senders {
		wg.Go(func() {
			for i := range each {
				seq := uint64(sender*each + i)
				if _, ok := tracer.Start(message(t, seq)); ok {
					begun.Store(seq, true)
				}
				if i%10 == 9 {
					tracer.Fail(seq, "refused", "")
				}
				tracer.End(Delivery{Partition: 1, Seqs: []uint64{seq}})
			}
		})
	}
	wg.Wait()
	tracer.Abandon("session_ended", "")
	n := 0
	begun.Range(func(any, any) bool { n++; return true })
	r.Wait(t, "export of all", func() bool { return len(r.Spans()) >= n })
	done()
	if left := tracer.Flush(t.Context()); left > 0 { // a batch whose response was lost when Run ended
		t.Errorf("%d spans are left", left)
	}
	if st := tracer.Stat(); st.Exported != uint64(n) || st.Dropped != uint64(senders*each-n) {
		t.Errorf("%d spans: %+v", n, st)
	}
}

// runTracer runs the exporter until end is called.
func runTracer(t *testing.T, tracer *Tracer) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { tracer.Run(ctx) })
	return func() {
		stop()
		wg.Wait()
	}
}

// In steady state, a span allocates memory only for the exemplar of a histogram.
func TestAllocations(t *testing.T) {
	tracer := New(config("http://localhost"), discard())
	m, seqs := message(t, 1), []uint64{1}
	cycle := func() {
		if _, ok := tracer.Start(m); !ok {
			t.Fatal("no span")
		}
		tracer.End(Delivery{Partition: 1, Offset: 1, Broker: "b:1", Seqs: seqs})
		tracer.free, tracer.ended = append(tracer.free, tracer.ended...), tracer.ended[:0]
	}
	cycle()
	if n := testing.AllocsPerRun(1000, cycle); n > 2 {
		t.Errorf("%v allocations a span", n)
	}
}

// BenchmarkSpan measures a span from its start to its export, without a network.
func BenchmarkSpan(b *testing.B) {
	tracer := New(config("http://localhost"), discard())
	tracer.client.Transport = &scripted{answer: func(int, http.ResponseWriter) error { return nil }}
	m, seqs := message(b, 1), []uint64{1}
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		if _, ok := tracer.Start(m); !ok {
			b.Fatal("no span")
		}
		tracer.End(Delivery{Partition: 1, Offset: 1, Broker: "b:1", Seqs: seqs})
		if n%batchSize == 0 {
			tracer.Flush(b.Context())
		}
	}
}

// Each request has the present headers. A redirect is not followed, so no other server gets them.
func TestRequestHeaders(t *testing.T) {
	elsewhere := tracetest.Start(t, httptest.NewServer)
	r := tracetest.Start(t, httptest.NewServer)
	cfg := config(r.URL)
	secret := "first"
	cfg.Headers = func() (http.Header, error) { return http.Header{"Api-Key": {secret}}, nil }
	tracer := New(cfg, discard())
	send := func() {
		t.Helper()
		if _, ok := tracer.Start(message(t, 1)); !ok {
			t.Fatal("no span")
		}
		tracer.End(Delivery{Seqs: []uint64{1}})
		tracer.Flush(t.Context())
	}
	send()
	secret = "second"
	r.Answer(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	send()
	var keys []string
	for _, h := range r.Requests() {
		keys = append(keys, h.Get("Api-Key"))
		if agent := h.Get("User-Agent"); agent != "outbox-cdc/v1.2.3" {
			t.Errorf("User-Agent is %q", agent)
		}
	}
	if diff := cmp.Diff("first second", strings.Join(keys, " ")); diff != "" || len(elsewhere.Requests()) > 0 {
		t.Errorf("keys %s, %d requests elsewhere", diff, len(elsewhere.Requests()))
	}
}
