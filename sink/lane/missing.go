package lane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// missingAnswers is how often a broker has to say that a destination is missing, before the records that wait for it
// may be rejected: a broker may say so while it elects a leader.
const missingAnswers = 3

// missingLogInterval is how often a missing destination is logged if records choose it: they may name any number.
const missingLogInterval = time.Second

// A missingState is since when the broker has said that a destination is missing, or that it may not be written.
type missingState struct {
	since   time.Time
	answers int
}

// awaitDestination makes the lane, whose request was rejected because its destination is missing or may not be
// written, ask again after a back-off. The other lanes of the destination wait for it. w.mu is held.
func (w *Writer) awaitDestination(f *flight, l *lane, err error, now time.Time) {
	d := l.destination
	w.recordRetry(d, err)
	if d.missing.answers == 0 {
		d.missing.since = f.start
		w.missingRecords += d.records
		w.missingMemory += d.memory
	}
	if d.prober != nil && d.prober != l {
		w.park(l)
		return
	}
	d.prober = l
	d.missing.answers++
	limit := backoffMax
	if !errors.Is(err, sink.ErrMissing) {
		limit = backoffDenied
	}
	w.failed(l, err, f.start, now, limit)
	if w.givesUp(d) {
		w.rejectAll(d, l, err)
		w.endProbe(d)
		w.release(l)
		return
	}
	w.logRejection(d, err, now)
	w.delay(l)
}

// park makes a lane wait for the prober of its destination. w.mu is held.
func (w *Writer) park(l *lane) {
	l.state = parked
	l.destination.parked = append(l.destination.parked, l)
}

// endProbe lets all lanes of d send. w.mu is held.
func (w *Writer) endProbe(d *destination) {
	waiting := d.parked
	d.prober, d.parked = nil, nil
	for _, l := range waiting {
		if l.head == nil {
			w.recycle(l)
		} else {
			w.makeReady(l)
		}
	}
}

// found notes that d exists. w.mu is held.
func (w *Writer) found(d *destination) {
	if d.missing.answers > 0 {
		w.missingRecords -= d.records
		w.missingMemory -= d.memory
		d.missing = missingState{}
	}
	if d.prober != nil {
		w.endProbe(d)
	}
	if d.rejectionLogged {
		d.rejectionLogged = false
		name := d.name
		w.logLater(func(ctx context.Context) {
			w.log.InfoContext(ctx, "destination accepts records", slog.String("destination", name))
		})
	}
}

// givesUp reports whether the records for d are to be rejected, because it is missing. A destination that was writable
// before is not theirs to blame for. w.mu is held.
func (w *Writer) givesUp(d *destination) bool {
	return w.mayGiveUp(d) && d.missing.answers >= missingAnswers &&
		w.cfg.GiveUp(sink.Missing{Destination: d.name, Since: d.missing.since, WindowShare: w.missingShare()})
}

func (w *Writer) mayGiveUp(d *destination) bool {
	return w.cfg.GiveUp != nil && d.counters == nil
}

// missingShare returns the part of the window that is taken by records for missing destinations. w.mu is held.
func (w *Writer) missingShare() float64 {
	return max(float64(w.missingMemory)/float64(w.options.WindowBytes), float64(w.missingRecords)/float64(w.options.WindowRecords))
}

// logRejection logs, once until it accepts records again, that a destination is missing or denied. w.mu is held.
func (w *Writer) logRejection(d *destination, err error, now time.Time) {
	if d.rejectionLogged || w.mayGiveUp(d) && now.Sub(w.missingLoggedAt) < missingLogInterval {
		return
	}
	d.rejectionLogged, w.missingLoggedAt = true, now
	attrs := sink.WithFix([]slog.Attr{slog.String("destination", d.name), slog.Any("err", err)}, sink.AdviceOf(err))
	w.logLater(func(ctx context.Context) {
		w.log.LogAttrs(ctx, slog.LevelError, "destination rejects records, retrying", attrs...)
	})
}
