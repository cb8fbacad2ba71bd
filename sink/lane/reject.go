package lane

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errRejected is the reason of a RecordError that has none.
var errRejected = errors.New("rejected by the broker")

// check returns why a record of d cannot be written, or nil.
func (w *Writer) check(d *destination, e *entry) *sink.RecordError {
	if d.illegal != "" {
		return &sink.RecordError{Reason: errors.New("the destination " + d.illegal)}
	}
	if w.options.Prepare == nil {
		return nil
	}
	err := w.options.Prepare(&e.record)
	if err == nil {
		return nil
	}
	if rejected, ok := errors.AsType[*sink.RecordError](err); ok {
		return rejected
	}
	return &sink.RecordError{Reason: err}
}

// prepare rejects the first records of the busy lane l as long as check does not accept them. w.mu is held.
func (w *Writer) prepare(l *lane) {
	for l.head != nil && !l.head.checked {
		rejected := w.check(l.destination, l.head)
		if rejected == nil {
			l.head.checked = true
			return
		}
		w.rejectFirst(l, rejected)
	}
}

// describe completes a RecordError about a record.
func describe(e *sink.RecordError, r *sink.Record, payload int) *sink.RecordError {
	described := *e
	described.Seq, described.Topic, described.Partition = r.Seq, r.Topic, sink.AnyPartition
	described.Key, described.Headers = bytes.Clone(r.Key), cloneHeaders(r.Headers)
	described.Size = cmp.Or(e.Size, payload)
	if described.Reason == nil {
		described.Reason = errRejected
	}
	return &described
}

func cloneHeaders(headers []sink.Header) []sink.Header {
	clones := make([]sink.Header, 0, len(headers))
	for _, h := range headers {
		clones = append(clones, sink.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return clones
}

// rejectFirst removes the first record of the busy lane l, which the broker rejects, and sends its substitute. A
// substitute of the same lane takes its place. Without a substitute, it ends the Writer. w.mu is held.
func (w *Writer) rejectFirst(l *lane, reason *sink.RecordError) {
	e, d := l.pop(), l.destination
	rejected := describe(reason, &e.record, e.payload)
	if instead := w.substitute(e, rejected); instead != nil {
		payload := instead.Size()
		if w.sameLane(instead, rejected) {
			l.pushFront(w.newEntry(d, instead, payload))
		} else {
			w.enqueue(instead, payload)
		}
		w.freeEntry(d, e)
		w.divertLater(d, rejected.Seq)
		return
	}
	w.freeEntry(d, e)
	w.fail(rejected)
}

// substitute returns the substitute of a rejected record, which may have its bytes, or nil. w.mu is held.
func (w *Writer) substitute(e *entry, rejected *sink.RecordError) *sink.Record {
	if w.cfg.Substitute == nil || w.halted || e.record.Seq >= w.lastSeq {
		return nil
	}
	r := e.record
	instead := w.cfg.Substitute(&r, rejected)
	if instead != nil {
		instead.Seq = rejected.Seq
	}
	return instead
}

// sameLane reports whether a substitute has the lane of the rejected record.
func (w *Writer) sameLane(instead *sink.Record, rejected *sink.RecordError) bool {
	if instead.Topic != rejected.Topic {
		return false
	}
	return w.options.PerDestination || instead.Key != nil && rejected.Key != nil && bytes.Equal(instead.Key, rejected.Key)
}

// fail ends the Writer because of a record without a substitute: earlier records are still delivered, later ones are
// dropped unless they were sent, so that no lane has a record after a missing one. w.mu is held.
func (w *Writer) fail(e *sink.RecordError) {
	if w.failure != nil && !w.halted && e.Seq > w.lastSeq {
		return // it is dropped like the others after the first rejected one
	}
	w.rejected = append(w.rejected, e)
	if w.halted || e.Seq >= w.lastSeq {
		return
	}
	w.failure, w.lastSeq = e, e.Seq
	w.dropUnsent()
	signal(w.windowFreed)
}

// dropUnsent drops every record after w.lastSeq that was never sent. w.mu is held.
func (w *Writer) dropUnsent() {
	for _, d := range w.destinations {
		for l := d.lanes; l != nil; {
			next := l.next
			w.dropUnsentOf(l)
			w.leaveIfEmpty(l)
			l = next
		}
	}
}

// dropUnsentOf drops those records of l. w.mu is held.
func (w *Writer) dropUnsentOf(l *lane) {
	if w.failure == nil {
		return
	}
	d := l.destination
	for e := l.head; e != nil; e = e.next {
		e.removed = e.removed || !e.sent && e.record.Seq > w.lastSeq
	}
	l.sweep(func(e *entry) { w.freeEntry(d, e) })
}

// unsentOf returns the records of d after a sequence that were not sent, in the order of Send, without the lanes for
// which skip returns true. w.mu is held.
func unsentOf(d *destination, after uint64, skip func(*lane) bool) []*entry {
	var unsent []*entry
	for l := d.lanes; l != nil; l = l.next {
		if skip(l) {
			continue
		}
		for e := l.head; e != nil; e = e.next {
			if !e.sent && e.record.Seq > after {
				unsent = append(unsent, e)
			}
		}
	}
	slices.SortFunc(unsent, func(a, b *entry) int { return cmp.Compare(a.record.Seq, b.record.Seq) })
	return unsent
}

// sweepLanes unlinks the removed entries of d. w.mu is held.
func (w *Writer) sweepLanes(d *destination) {
	for l := d.lanes; l != nil; {
		next := l.next
		l.sweep(func(e *entry) { w.freeEntry(d, e) })
		w.leaveIfEmpty(l)
		l = next
	}
}

// divertLater asks Divert about the records of d after a sequence that were not sent. It is called after a substitute
// was enqueued, before any other record is. w.mu is held.
func (w *Writer) divertLater(d *destination, after uint64) {
	if w.cfg.Divert == nil || w.failure != nil {
		return
	}
	diverted := false
	for _, e := range unsentOf(d, after, func(*lane) bool { return false }) {
		r := e.record
		instead := w.cfg.Divert(&r)
		if instead == nil {
			continue
		}
		instead.Seq = e.record.Seq
		w.enqueue(instead, instead.Size())
		e.removed, diverted = true, true
	}
	if diverted {
		w.sweepLanes(d)
	}
}

// rejectAll rejects the records of d, which is missing, except those behind another request than that of l. The first
// one without a substitute ends the Writer, and the others are dropped. w.mu is held.
func (w *Writer) rejectAll(d *destination, l *lane, reason error) {
	substituted := false
	for _, e := range unsentOf(d, 0, func(other *lane) bool { return other.state == busy && other != l }) {
		rejected := describe(&sink.RecordError{Reason: reason}, &e.record, e.payload)
		var instead *sink.Record
		if substituted && w.cfg.Divert != nil {
			r := e.record
			instead = w.cfg.Divert(&r)
		}
		if instead == nil {
			instead = w.substitute(e, rejected)
			substituted = true
		}
		e.removed = true
		if instead == nil {
			w.fail(rejected)
			break
		}
		instead.Seq = rejected.Seq
		w.enqueue(instead, instead.Size())
	}
	w.sweepLanes(d)
}
