package position

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// A Writer writes positions during an ownership, and decides when and what. It outlives ownerships. Run and Write belong to the
// ownership, and do not overlap; the other methods may be called from any goroutine.
type Writer struct {
	record   *Record
	recorder *Recorder
	parked   *ParkedKeys
	timeline *Timeline // of positions that are recorded
	log      *slog.Logger

	tracker   *checkpoint.Tracker                 // of the ownership
	wake      chan struct{}                       // cap 1; the Tracker may be ahead of the record
	copied    atomic.Pointer[checkpoint.Witness]  // not nil: the pending initial copy or refill is delivered, see MarkCopied
	snapshot  atomic.Pointer[checkpoint.Snapshot] // newest delivered snapshot that is not in the record
	refilled  chan struct{}                       // see Refilled
	busySince atomic.Int64                        // when Run started to use the store, in Unix nanoseconds; 0: Run does not use it
	unplaced  bool                                // Run has logged errTimelineUnknown
}

// startOwnership makes t the Tracker whose position is written.
func (w *Writer) startOwnership(t *checkpoint.Tracker) {
	w.copied.Store(nil)
	w.snapshot.Store(nil)
	w.tracker = t
	w.record.startGeneration()
	if _, atOnce := w.record.nextWrite(); atOnce {
		w.Wake()
	}
}

// KeepSnapshot records that every transaction that is visible in s is delivered.
func (w *Writer) KeepSnapshot(s checkpoint.Snapshot) { w.snapshot.Store(&s) }

// MarkCopied records that the initial copy or the refill, which saw witness, is delivered.
func (w *Writer) MarkCopied(witness checkpoint.Witness) {
	w.copied.Store(&witness)
	w.Wake()
}

// Refilled has a value when a record says that a refill is done.
func (w *Writer) Refilled() <-chan struct{} { return w.refilled }

// Wake has Run write a record if the Tracker is ahead.
func (w *Writer) Wake() { signal(w.wake) }

// Confirmed returns the position to confirm to Postgres, 0 for none, and wakes Run if the Tracker may be ahead of the record.
func (w *Writer) Confirmed() pglogrepl.LSN {
	confirmed, recorded := w.tracker.Confirmed(), w.record.confirmable()
	if confirmed > recorded || w.tracker.Prefix() != (checkpoint.Prefix{}) {
		w.Wake()
	}
	if !w.tracker.Recognized() {
		return 0
	}
	return min(confirmed, recorded) // confirmed may be 0, for the slot's own position
}

// Resumable returns how many rows of the transaction at commitLSN a new record would contain as
// acknowledged.
func (w *Writer) Resumable(commitLSN pglogrepl.LSN) int {
	if p := w.tracker.Prefix(); w.recorder.store.values != nil && p.CommitLSN == commitLSN {
		return int(p.Rows)
	}
	return 0
}

// WaitingSince returns since when a confirmed position has been waiting for the store. It returns zero if none is waiting.
func (w *Writer) WaitingSince() time.Time {
	if since := w.busySince.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}

// Run writes a record each time it is woken. It returns nil when ctx ends, or an error of the store, which wraps
// [sink.ErrSuperseded] if another process has become the owner.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.busySince.Store(time.Now().UnixNano())
		_, err := w.Write(ctx)
		w.busySince.Store(0)
		unknown := errors.Is(err, errTimelineUnknown)
		if unknown && !w.unplaced {
			w.log.WarnContext(ctx, "positions wait, retrying", slog.Any("err", err))
		}
		if w.unplaced = unknown; unknown {
			continue // until the next status update; if the server is lost, another session finds out
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // an error during a stop does not matter: the last position is written after it
			}
			return err
		}
	}
}

// Write writes the confirmed position if the record is behind, and returns when the store has
// acknowledged it. wrote is false if there was nothing to write.
func (w *Writer) Write(ctx context.Context) (wrote bool, err error) {
	p, atOnce := w.record.nextWrite()
	snapshot := w.snapshot.Load() // before Confirmed, so that the position covers the snapshot
	confirmed, last := w.tracker.Passed()
	open := w.tracker.Prefix()
	witness := w.copied.Load()
	copied := (p.Copying || p.Refill != nil) && witness != nil
	further := open != p.Open && open.Rows > 0 && !p.Copying // an initial copy cannot be resumed
	if confirmed <= p.EndLSN && !further && !copied && !atOnce {
		return false, nil
	}
	if err := w.timeline.check(ctx); err != nil {
		return false, err
	}
	if confirmed >= p.EndLSN {
		p.EndLSN, p.Last = confirmed, last
	}
	p.Open, p.AdvancedAt = open, time.Now()
	refilled := copied && p.Refill != nil
	if refilled {
		p = p.EndRefill(*witness)
	}
	if copied {
		p.Copying, p.CopyBegan = false, time.Time{}
	}
	p.Publication = w.recorder.publication(&p)
	p.KeysParked = !w.parked.set.Empty() // after Confirmed, so that it counts the keys of what is confirmed
	if snapshot != nil {
		p = p.WithSnapshot(*snapshot)
	}
	if err := w.parked.Store(ctx, false); err != nil { // before the position that covers their bad records
		return false, err
	}
	if err := w.recorder.replaceRecord(ctx, p); err != nil {
		return false, err
	}
	w.snapshot.CompareAndSwap(snapshot, nil)
	if refilled {
		signal(w.refilled)
	}
	return true, nil
}

// signal wakes the goroutine that waits for c, a channel with capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
