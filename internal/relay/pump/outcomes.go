package pump

import (
	"errors"
	"sync/atomic"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Outcomes handles what a writer reports about the records of an ownership. Its methods may be called from any goroutine.
type Outcomes struct {
	tracker     *checkpoint.Tracker
	deadLetters *DeadLetters
	spans       *spans        // nil: none
	acked       chan struct{} // cap 1; wakes the Pump
	copiedAt    atomic.Uint64 // LSN of the transaction of the copied rows; 0: there are none

	seqs []checkpoint.Seq // buffer of Ack
}

// NewOutcomes returns the Outcomes of an ownership. tracer may be nil.
func NewOutcomes(tracker *checkpoint.Tracker, deadLetters *DeadLetters, tracer *tracing.Tracer) *Outcomes {
	return &Outcomes{tracker: tracker, deadLetters: deadLetters, spans: newSpans(tracer), acked: make(chan struct{}, 1)}
}

// Ack acknowledges records to the Tracker. It is called from one goroutine at a time.
func (o *Outcomes) Ack(seqs []uint64) error {
	defer signal(o.acked)
	o.seqs = o.seqs[:0]
	for _, seq := range seqs {
		o.seqs = append(o.seqs, checkpoint.Seq(seq))
	}
	return o.tracker.Ack(o.seqs...)
}

// Substitute is the writer's [sink.Substitute]: it returns the dead letter of a rejected record.
func (o *Outcomes) Substitute(r *sink.Record, rejected *sink.RecordError) *sink.Record {
	o.spans.failSpan(rejected)
	commitLSN, index, ok := o.tracker.Locate(checkpoint.Seq(r.Seq))
	if !ok {
		return nil
	}
	tx := encode.Tx{CommitLSN: commitLSN, Timestamp: r.Timestamp}
	return o.deadLetters.replaceRecord(tx, index, r, rejected)
}

// Divert is the writer's Divert: it returns the dead letter of a record whose key is parked because of an
// earlier one.
func (o *Outcomes) Divert(r *sink.Record) *sink.Record {
	d := o.deadLetters
	if d.parked.Empty() || r.Key == nil || r.Topic == d.topic {
		return nil
	}
	commitLSN, index, _ := o.tracker.Locate(checkpoint.Seq(r.Seq)) // it is outstanding
	return d.follow(r, encode.Origin{Slot: d.slot, Tx: encode.Tx{CommitLSN: commitLSN, Timestamp: r.Timestamp}, Index: index})
}

// EndSpans is the writer's Delivered: it ends the spans of delivered records and returns an example. There must be a tracer.
func (o *Outcomes) EndSpans(d sink.Delivery) (example string) { return o.spans.endSpans(d) }

// Abandon ends the spans of records that have no outcome at the end of the ownership.
func (o *Outcomes) Abandon() { o.spans.abandonSpans() }

// Explain returns err, which is about the first record of seqs, with the position of its row.
func (o *Outcomes) Explain(seqs []uint64, err error) error {
	if len(seqs) == 0 {
		return err
	}
	commitLSN, index, ok := o.tracker.Locate(checkpoint.Seq(seqs[0]))
	if !ok {
		return err
	}
	failed := &DeliveryError{CommitLSN: commitLSN, Row: index, Copied: uint64(commitLSN) == o.copiedAt.Load(), Err: o.deadLetters.explain(err)}
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		for _, h := range rec.Headers {
			if h.Key == encode.IDHeader {
				failed.ID = string(h.Value)
			}
		}
	}
	return failed
}
