package pump

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/tracetest"
)

const (
	aTrace      = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + aTrace + "-00f067aa0ba902b7-01"
)

// recordOf returns a record with the headers of a row.
func recordOf(seq uint64, headers ...string) *sink.Record {
	rec := &sink.Record{Seq: seq, Topic: "order", Key: []byte("a"), Value: []byte("1"), Headers: []sink.Header{{Key: encode.IDHeader, Value: []byte("id-1")}}}
	for i := 0; i < len(headers); i += 2 {
		rec.Headers = append(rec.Headers, sink.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return rec
}

// In a record of a sampled trace, traceparent names the relay's span. All other records and headers are unchanged.
func TestSpansOfSampledRecordsOnly(t *testing.T) {
	r := tracetest.Start(t, httptest.NewServer)
	tracer := tracing.New(tracing.Config{URL: r.URL, System: "kafka"}, slog.New(slog.DiscardHandler))
	s := newSpans(tracer)
	for name, headers := range map[string][]string{
		"no context":      nil,
		"not sampled":     {"traceparent", traceparent[:53] + "00"},
		"no traceparent":  {"traceparent", "00-ab-cd-01", "tracestate", "a=b"},
		"of another case": {"Traceparent", traceparent},
	} {
		rec, want := recordOf(1, headers...), recordOf(1, headers...)
		if id, ok := s.startSpan(rec, encode.Tx{CommitLSN: 100}); ok || id != ([16]byte{}) {
			t.Errorf("%s: a span of %s", name, id)
		}
		if diff := cmp.Diff(want, rec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	rec, want := recordOf(7, "a", "b", "tracestate", "x=y", "traceparent", traceparent), recordOf(7, "a", "b", "tracestate", "x=y", "traceparent", "")
	id, ok := s.startSpan(rec, encode.Tx{CommitLSN: 0x64, CommitTime: time.Now()})
	if !ok || hex.EncodeToString(id[:]) != aTrace {
		t.Fatalf("%s, %v", id, ok)
	}
	if example := s.endSpans(sink.Delivery{Topic: "order", Partition: 2, Offset: 5, Broker: "b:9092", Seqs: []uint64{6, 7}}); example != aTrace {
		t.Errorf("the example is %q", example)
	}
	tracer.Flush(t.Context())
	span := r.Received(t, 1)[0]
	want.Headers[3].Value = []byte("00-" + aTrace + "-" + span.SpanID + "-01")
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a := span.Attributes; a["messaging.message.id"] != "id-1" || a["outbox_cdc.commit_lsn"] != "0/64" || a["messaging.kafka.offset"] != int64(6) || span.State != "x=y" {
		t.Errorf("%+v", span)
	}
	if diff := cmp.Diff(tracing.Stat{Exported: 1}, tracer.Stat()); diff != "" {
		t.Error(diff)
	}
}

// Records that are rejected, and records without an outcome at the end of the session, have spans that say so.
func TestSpansEndWithoutDelivery(t *testing.T) {
	r := tracetest.Start(t, httptest.NewServer)
	tracer := tracing.New(tracing.Config{URL: r.URL, System: "kafka"}, slog.New(slog.DiscardHandler))
	s := newSpans(tracer)
	for seq := range uint64(2) {
		if _, ok := s.startSpan(recordOf(seq, "traceparent", traceparent), encode.Tx{CommitTime: time.Now()}); !ok {
			t.Fatal("no span")
		}
	}
	s.failSpan(&sink.RecordError{Seq: 0, Topic: "order", Code: "MESSAGE_TOO_LARGE", Reason: errors.New("too large")})
	s.abandonSpans()
	tracer.Flush(t.Context())
	for i, want := range []string{"MESSAGE_TOO_LARGE", "session_ended"} {
		if span := r.Received(t, 2)[i]; !span.Failed || span.Attributes["error.type"] != want || span.Status == "" {
			t.Errorf("%+v, want %s", span, want)
		}
	}
	var none *spans
	none.failSpan(nil)
	none.cancelSpan(1)
	none.abandonSpans()
}
