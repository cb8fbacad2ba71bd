package pump

import (
	"cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// spans makes the spans for the records of an ownership. Only the goroutine of the pump calls startSpan; the
// other methods may be called from any goroutine.
type spans struct {
	tracer *tracing.Tracer
	parent []byte // traceparent of the record being sent
}

// newSpans returns nil if t is nil.
func newSpans(t *tracing.Tracer) *spans {
	if t == nil {
		return nil
	}
	return &spans{tracer: t}
}

// startSpan starts the span for a record of a row of tx, if the row's trace context is sampled, and writes
// it to the record's traceparent. It returns the id of the trace.
func (s *spans) startSpan(rec *sink.Record, tx encode.Tx) (id [16]byte, ok bool) {
	m := tracing.Message{
		Seq: rec.Seq, Topic: rec.Topic, Key: rec.Key, Size: len(rec.Value), Tombstone: rec.Value == nil,
		CommitLSN: tx.CommitLSN, Committed: tx.CommitTime,
	}
	at := -1
	for i := range rec.Headers {
		switch h := &rec.Headers[i]; h.Key {
		case tracing.ParentHeader:
			at = i
		case tracing.StateHeader:
			m.State = h.Value
		case encode.IDHeader:
			m.ID = h.Value
		}
	}
	if at < 0 {
		return [16]byte{}, false
	}
	if m.Parent, ok = tracing.ParseContext(rec.Headers[at].Value); !ok || !m.Parent.Sampled() {
		return [16]byte{}, false
	}
	own, ok := s.tracer.Start(&m)
	if !ok {
		return [16]byte{}, false
	}
	s.parent = own.AppendText(s.parent[:0])
	rec.Headers[at].Value = s.parent
	return own.TraceID, true
}

// endSpans implements Delivered of [sink.WriterConfig]: it ends the spans of delivered records and returns
// an example.
func (s *spans) endSpans(d sink.Delivery) (example string) {
	return s.tracer.End(tracing.Delivery{Partition: d.Partition, Offset: d.Offset, Broker: d.Broker, Seqs: d.Seqs})
}

// failSpan ends the span of a record that the broker rejects.
func (s *spans) failSpan(rejected *sink.RecordError) {
	if s == nil {
		return
	}
	s.tracer.Fail(rejected.Seq, cmp.Or(rejected.Code, "refused"), rejected.Error())
}

// cancelSpan ends the span of a record that the writer has not accepted.
func (s *spans) cancelSpan(seq uint64) {
	if s != nil {
		s.tracer.Fail(seq, "session_ended", "not sent when the session ended; the next session sends it")
	}
}

// abandonSpans ends the spans of records that have no outcome at the end of the ownership.
func (s *spans) abandonSpans() {
	if s != nil {
		s.tracer.Abandon("session_ended", "not acknowledged when the session ended; it is resent")
	}
}
