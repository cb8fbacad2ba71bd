package lane

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A flight is a request, until its outcome is applied.
type flight struct {
	Request
	writer  *Writer
	lane    *lane
	single  [1]*sink.Record // memory of Records
	payload int
	start   time.Time

	older, newer *flight // list of those that are outstanding

	ended  atomic.Bool
	took   time.Duration
	stored int
	err    error
	next   *flight // in outcomes
}

// newFlight returns a request with the first records of l. w.mu is held.
//
// A request that is sent again has the same records, so that the broker can recognize it.
func (w *Writer) newFlight(l *lane, now time.Time) *flight {
	f := &flight{writer: w, lane: l, start: now}
	f.Fence, f.Done, f.Resent = w.fence, f.done, l.head.sent
	f.Records = append(f.single[:0], &l.head.record)
	f.payload = l.head.payload
	l.head.sent = true
	for e := l.head.next; e != nil && w.joins(f, e); e = e.next {
		f.Records = append(f.Records, &e.record)
		f.payload += e.payload
		e.sent = true
	}
	f.older = w.newest
	if w.newest == nil {
		w.oldest = f
	} else {
		w.newest.newer = f
	}
	w.newest = f
	w.outstanding++
	return f
}

// joins reports whether f may have e as its next record. w.mu is held.
func (w *Writer) joins(f *flight, e *entry) bool {
	if f.Resent || e.sent {
		return f.Resent && e.sent
	}
	if len(f.Records) >= w.options.RequestRecords || w.options.RequestBytes > 0 && f.payload+e.payload > w.options.RequestBytes {
		return false
	}
	if !e.checked {
		e.checked = w.check(f.lane.destination, e) == nil
	}
	return e.checked
}

// landed removes f from the list of those that are outstanding. w.mu is held.
func (w *Writer) landed(f *flight) {
	if f.older == nil {
		w.oldest = f.newer
	} else {
		f.older.newer = f.newer
	}
	if f.newer == nil {
		w.newest = f.older
	} else {
		f.newer.older = f.older
	}
	f.older, f.newer = nil, nil
	w.outstanding--
}

// A fencedError is what Request.Fence returns.
type fencedError struct{ error }

func (e fencedError) Unwrap() error { return e.error }

// requestFence is Request.Fence.
func (w *Writer) requestFence() error {
	if err := w.checkFence(); err != nil {
		return fencedError{err}
	}
	return nil
}

// isFenced reports whether err is of Request.Fence: the request was not written.
func isFenced(err error) bool {
	_, ok := errors.AsType[fencedError](err)
	return ok
}

// done is Request.Done. Only the first call counts: no later one can acknowledge a record.
func (f *flight) done(stored int, err error) {
	if f.ended.Swap(true) {
		return
	}
	f.took, f.stored, f.err = time.Since(f.start), stored, err
	if f.writer.outcomes.add(f) {
		signal(f.writer.wake)
	}
}

// outcomes are the flights that have ended and are not applied yet.
type outcomes struct {
	mu          sync.Mutex
	first, last *flight
}

// add reports whether f is the first one.
func (o *outcomes) add(f *flight) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.first, o.last = f, f
		return true
	}
	o.last.next = f
	o.last = f
	return false
}

// take removes all and returns the first.
func (o *outcomes) take() *flight {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.first
	o.first, o.last = nil, nil
	return f
}
