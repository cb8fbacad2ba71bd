package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// errIncomplete: a request without an error of which not every record is stored.
var errIncomplete = errors.New("the broker has not acknowledged every record of a request")

// applyOutcomes reports the outcomes of the requests that have ended, and then lets their lanes continue. It uses the
// memory of seqs and returns it.
func (w *Writer) applyOutcomes(seqs []uint64, done func(seqs []uint64, err error)) []uint64 {
	first := w.outcomes.take()
	seqs = seqs[:0]
	for f := first; f != nil; f = f.next {
		seqs = w.reportDelivery(f, seqs)
	}
	// Report outcomes before updating the window: when no record is in flight, every outcome must have been reported.
	if len(seqs) > 0 {
		done(seqs, nil)
	}
	if first != nil {
		now := time.Now()
		w.mu.Lock()
		w.landedAt = now
		for f := first; f != nil; f = f.next {
			w.apply(f, now)
		}
		w.mu.Unlock()
		signal(w.windowFreed)
	}
	return seqs
}

// reportDelivery calls Delivered and Answered for f, and appends the sequences of the stored records.
func (w *Writer) reportDelivery(f *flight, seqs []uint64) []uint64 {
	f.stored = max(0, min(f.stored, len(f.Records)))
	before := len(seqs)
	for _, r := range f.Records[:f.stored] {
		seqs = append(seqs, r.Seq)
	}
	example := ""
	if w.cfg.Delivered != nil && f.stored > 0 {
		example = w.cfg.Delivered(sink.Delivery{
			Topic: f.Records[0].Topic, Partition: sink.AnyPartition, Offset: -1, Broker: w.options.Broker, Seqs: seqs[before:],
		})
	}
	if w.cfg.Answered != nil && !errors.Is(f.err, ErrConnection) && !isFenced(f.err) {
		w.cfg.Answered(f.took, example)
	}
	return seqs
}

// reportRejected calls done for the records that were rejected.
func (w *Writer) reportRejected(done func(seqs []uint64, err error)) {
	w.mu.Lock()
	rejected := w.rejected
	w.rejected = nil
	w.mu.Unlock()
	for _, e := range rejected {
		done([]uint64{e.Seq}, e)
	}
}

// apply acknowledges, retries or rejects the records of f. w.mu is held.
func (w *Writer) apply(f *flight, now time.Time) {
	l := f.lane
	d := l.destination
	w.landed(f)
	size := 0
	for range f.stored {
		e := l.pop()
		size += e.payload
		w.freeEntry(d, e)
	}
	err := f.err
	if f.stored > 0 {
		w.count(d, f.stored, size)
		w.recovered(l)
		w.connected()
		w.found(d)
	}
	switch left := len(f.Records) - f.stored; {
	case left == 0:
		w.release(l)
	case err == nil:
		w.retry(f, l, errIncomplete, now)
	case isFenced(err):
		w.takeBack(f, l, left)
	default:
		w.applyError(f, l, err, left, now)
	}
}

// count counts records of d that are stored, and their size. w.mu is held.
func (w *Writer) count(d *destination, records, size int) {
	if d.counters == nil {
		d.counters = w.base.written(d.name)
	}
	d.counters.records.Add(int64(records))
	d.counters.bytes.Add(int64(size))
}

// applyError handles an error of f, of which left records are not stored. w.mu is held.
func (w *Writer) applyError(f *flight, l *lane, err error, left int, now time.Time) {
	rejected, isRejected := errors.AsType[*sink.RecordError](err)
	switch {
	case isRejected:
		w.connected()
		w.found(l.destination)
		w.recovered(l)
		w.unsend(l, left)
		w.rejectFirst(l, rejected)
		w.dropUnsentOf(l)
		w.release(l)
	case errors.Is(err, ErrConnection):
		w.disconnected(f, err, now)
		w.recordRetry(l.destination, err)
		w.makeReady(l)
	case isFatal(err):
		w.stop(fmt.Errorf("destination %s: %w", l.destination.name, err))
		w.makeReady(l)
	case errors.Is(err, sink.ErrMissing), errors.Is(err, sink.ErrAccess):
		w.connected()
		w.unsend(l, left)
		if w.dropUnsentOf(l); l.head == nil {
			w.release(l)
			return
		}
		w.awaitDestination(f, l, err, now)
	default:
		w.connected()
		w.retry(f, l, err, now)
	}
}

// isFatal reports whether the Writer cannot write any more after err.
func isFatal(err error) bool {
	return errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrSuperseded)
}

// unsend notes that the broker has none of the first n records of l. w.mu is held.
func (w *Writer) unsend(l *lane, n int) {
	for e := l.head; e != nil && n > 0; e, n = e.next, n-1 {
		e.sent = false
	}
}

// takeBack makes the records of f ready again, because f was not written. w.mu is held.
func (w *Writer) takeBack(f *flight, l *lane, left int) {
	if !f.Resent {
		w.unsend(l, left)
		w.dropUnsentOf(l)
	}
	w.release(l)
}

// retry makes l send the records of f again after a back-off, or at once after a first ErrStale. w.mu is held.
func (w *Writer) retry(f *flight, l *lane, err error, now time.Time) {
	if l.attempts == 0 && errors.Is(err, ErrStale) { // no failure, so it is no stall either
		l.recordFailure(err, f.start, now, backoffMax)
		w.base.retries.Add(1)
		w.makeReady(l)
		return
	}
	w.recordRetry(l.destination, err)
	w.failed(l, err, f.start, now, backoffMax)
	if asked, ok := errors.AsType[Delayed](err); ok {
		if at := now.Add(asked.RetryAfter()); at.After(l.retryAt) {
			l.retryAt = at
		}
	}
	w.delay(l)
}

// recordRetry counts a request that is sent again.
func (w *Writer) recordRetry(d *destination, err error) {
	w.base.retries.Add(1)
	w.base.recordError("destination " + d.name + ": " + err.Error())
}

// stop ends the Writer with err: nothing more is sent, and Run waits for the requests that are outstanding. w.mu is
// held.
func (w *Writer) stop(err error) {
	if w.halted {
		return
	}
	w.failure, w.halted, w.lastSeq = err, true, 0
	signal(w.windowFreed)
}

// disconnected notes that the broker cannot be reached. Requests that fail together are one attempt. w.mu is held.
func (w *Writer) disconnected(f *flight, err error, now time.Time) {
	if w.connection.attempts > 0 && f.start.Before(w.connectionFailedAt) {
		return
	}
	limit := backoffMax
	if errors.Is(err, sink.ErrAccess) {
		limit = backoffDenied
		w.logDenied(err, now)
	} else if w.connection.attempts == 0 {
		w.logLater(func(ctx context.Context) {
			w.log.WarnContext(ctx, "no connection to the broker, retrying", slog.String("broker", w.options.Broker), slog.Any("err", err))
		})
	}
	w.connection.recordFailure(err, f.start, now, limit)
	w.connectionFailedAt = now
}

// deniedLogInterval is how often it is logged at most that the broker rejects the connection.
const deniedLogInterval = time.Minute

// logDenied logs, once until the broker responds again, that it rejects the connection: a person has to fix that. w.mu is
// held.
func (w *Writer) logDenied(err error, now time.Time) {
	if w.deniedLogged || now.Sub(w.deniedLoggedAt) < deniedLogInterval {
		return
	}
	w.deniedLogged, w.deniedLoggedAt = true, now
	attrs := sink.WithFix([]slog.Attr{slog.String("broker", w.options.Broker), slog.Any("err", err)}, sink.AdviceOf(err))
	w.logLater(func(ctx context.Context) {
		w.log.LogAttrs(ctx, slog.LevelError, "broker rejects the connection, retrying", attrs...)
	})
}

// connected notes that the broker has responded. w.mu is held.
func (w *Writer) connected() {
	if w.connection.attempts == 0 {
		return
	}
	after := time.Since(w.connection.since)
	w.connection, w.deniedLogged = retryState{}, false
	w.logLater(func(ctx context.Context) {
		w.log.InfoContext(ctx, "broker responds again", slog.String("broker", w.options.Broker), slog.Duration("after", after))
	})
}
