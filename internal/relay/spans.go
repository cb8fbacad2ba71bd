package relay

import (
	"cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// spans gives the records of a session their spans. It belongs to the publishing goroutine, but
// for what outcomes lead to.
type spans struct {
	tracer *tracing.Tracer
	parent []byte // of the record being sent: its traceparent
}

// newSpans returns nil where there are none.
func newSpans(t *tracing.Tracer) *spans {
	if t == nil {
		return nil
	}
	return &spans{tracer: t}
}

// begin begins the span of a record that was made of a row of tx, if the row's context is sampled,
// and has the record name it. It returns the trace's id then.
func (s *spans) begin(rec *sink.Record, tx encode.Tx) (id [16]byte, ok bool) {
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
	own, ok := s.tracer.Begin(&m)
	if !ok {
		return [16]byte{}, false
	}
	s.parent = own.AppendText(s.parent[:0])
	rec.Headers[at].Value = s.parent
	return own.TraceID, true
}

// delivered is the writer's Delivered.
func (s *spans) delivered(d sink.Delivery) (example string) {
	return s.tracer.End(tracing.Delivery{Partition: d.Partition, Offset: d.Offset, Broker: d.Broker, Seqs: d.Seqs})
}

// refused ends the span of a record that Kafka does not take.
func (s *spans) refused(refused *sink.RecordError) {
	if s == nil {
		return
	}
	s.tracer.Fail(refused.Seq, cmp.Or(refused.Code, "refused"), refused.Error())
}

// abandon ends the spans of records without an outcome, at the end of the session.
func (s *spans) abandon() {
	if s != nil {
		s.tracer.Abandon("session_ended", "not acknowledged when the session ended; it is sent again")
	}
}
