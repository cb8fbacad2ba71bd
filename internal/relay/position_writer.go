package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// PositionTopic is the default name of a position store at the broker.
const PositionTopic = "outbox-cdc.positions"

// A positionWriter writes the position record to the position store, as its owner: see [checkpoint.Position]. The stream confirms to Postgres only positions that
// are stored there. So the slot is never ahead of the record; if a start finds it ahead, rows may be
// missing.
//
// A tenure passes through these states:
//
//	state           the record                     confirmed to Postgres   the next write
//	recordUnread    not compared with the slot     nothing                 announceCopy, beginTenure
//	recordCurrent   the tenure starts at it,       the record's position   when the Tracker confirms
//	                or has written it                                      a later position
//	recordObsolete  missing, not used, or of an    nothing                 at once, in the next term
//	                older timeline: the tenure
//	                starts at another position
//
//	beginTenure: any → recordUnread
//	chooseStart: recordUnread → recordCurrent, recordObsolete
//	run, proveOwner: any → recordCurrent
//
// Without a store the record is kept in memory.
//
// A positionWriter outlives tenures. While run runs, other goroutines may only call readStore,
// canContinue, proveOwner, confirmedPosition, covers, keepSnapshot, markCopied and waitingSince.
type positionWriter struct {
	log       *slog.Logger
	store     sink.PositionStore     // nil: the record is kept in memory only
	owner     sink.Owner             // of store, since the last ownStore
	acceptGap bool                   // the first tenure may start after a gap
	startOver bool                   // the next tenure does not continue an interrupted refill: its rows have changed
	published atomic.Pointer[string] // the publication as last read, see [catalog.State.Published]; nil: not yet
	parked    *parkedStore           // where the parked keys are stored
	timeline  timelineCheck          // of positions that are recorded
	refilled  func()                 // called when the record says that a refill is done; nil: nobody waits for it

	recording chan struct{} // cap 1: held while the record is written
	mu        sync.Mutex    // run writes state, stored and next; other goroutines read them
	state     recordState
	stored    checkpoint.Position // the record as last read or written; zero: none
	next      checkpoint.Position // the base of the next record

	foreign  bool // warnForeign has logged
	unplaced bool // run has logged errTimelineUnknown

	tracker *checkpoint.Tracker // of the tenure

	reportable atomic.Uint64                       // an LSN: that of the record in state recordCurrent, otherwise 0
	busySince  atomic.Int64                        // when run started to use the store, in Unix nanoseconds; 0: run does not use it
	wake       chan struct{}                       // cap 1; the Tracker may be ahead of the record
	copied     atomic.Bool                         // the pending initial copy or refill is delivered
	snapshot   atomic.Pointer[checkpoint.Snapshot] // newest delivered snapshot that is not in the record
}

// A recordState says how the position record relates to the current tenure.
type recordState int

const (
	recordUnread recordState = iota
	recordCurrent
	recordObsolete
)

func newPositionWriter(store sink.PositionStore, acceptGap bool, log *slog.Logger) *positionWriter {
	return &positionWriter{
		log: log, store: store, acceptGap: acceptGap, recording: make(chan struct{}, 1), wake: make(chan struct{}, 1), parked: newParkedStore(),
	}
}

// enterState sets the state, and the position that may be confirmed in it.
func (w *positionWriter) enterState(s recordState) {
	w.state = s
	reportable := pglogrepl.LSN(0)
	if s == recordCurrent {
		reportable = w.stored.EndLSN
	}
	w.reportable.Store(uint64(reportable))
}

// requireNoRecord makes this process the owner, and returns an error if there is a record. If the slot is missing but has a record,
// it was dropped, and the relay must not re-create it as if it had never existed.
func (w *positionWriter) requireNoRecord(ctx context.Context, slot string) error {
	found, err := w.ownStore(ctx)
	if err != nil || found.position == nil {
		return err
	}
	w.stored = *found.position
	lost := w.stored
	if lost.Refill != nil {
		lost = lost.Refill.Lost
	}
	if lost.EndLSN == 0 || w.acceptGap {
		return nil
	}
	return fmt.Errorf("%w: publication and slot %q were dropped; rows committed after %s, the position recorded at %s, cannot be read from the WAL any more",
		replication.ErrSlotMissing, slot, lost.EndLSN, lost.WrittenAt.UTC().Format(time.RFC3339))
}

// announceCopy writes a record that an initial copy is pending. It is called after requireNoRecord, before the slot is created.
func (w *positionWriter) announceCopy(ctx context.Context, systemID, slot string) error {
	p := checkpoint.Position{SystemID: systemID, Slot: slot, Copying: true, CopyBegan: time.Now().UTC(), Term: w.stored.Term + 1, Tenure: w.stored.Tenure, KeysParked: w.stored.KeysParked}
	if err := w.storeRecord(ctx, p); err != nil {
		return err
	}
	w.acceptGap = false // a new slot has no gap
	return nil
}

// copyPending reports whether the tenure must deliver an initial copy before the stream. A refill is none.
func (w *positionWriter) copyPending() bool { return w.next.Copying }

// markCopied records that the initial copy or the refill is delivered. It may be called from any goroutine.
func (w *positionWriter) markCopied() {
	w.copied.Store(true)
	signal(w.wake)
}

// chooseStart returns the position at which a tenure on s starts, after beginTenure: that of the record, or
// the fork if the server left the record's timeline before it, or 0 for the slot's own position. A
// *checkpoint.GapError stops the relay; if the operator has accepted the gap, chooseStart only logs it.
func (w *positionWriter) chooseStart(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	var start pglogrepl.LSN
	if w.stored.EndLSN != 0 || w.stored.Refill != nil {
		var err error
		start, err = w.continueRecord(ctx, s)
		if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && w.acceptGap {
			w.log.WarnContext(ctx, "gap accepted, rows in between may not have been delivered",
				slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.String("reason", gap.Reason))
		} else if err != nil {
			return 0, err
		}
	}
	w.next = w.stored
	if w.stored.Copying && w.acceptGap {
		w.log.WarnContext(ctx, "gap accepted, rows of the initial copy may not have been delivered")
		w.next.Copying, w.next.CopyBegan = false, time.Time{}
	}
	if w.stored.Refill != nil && w.acceptGap {
		w.log.WarnContext(ctx, "gap accepted, rows of the refill may not have been delivered")
		w.next.Refill = nil
	}
	w.next = w.next.Moved(s, cmp.Or(start, s.Confirmed))
	if w.startOver {
		w.next.Open = checkpoint.Prefix{}
	}
	if start != 0 && w.stored.Timeline == s.Timeline {
		w.enterState(recordCurrent)
	} else {
		w.enterState(recordObsolete)
	}
	return start, nil
}

// continueRecord returns the position at which the record continues on s. Without a store, a slot ahead of
// the record need not be a gap, because another relay may have used the slot: then continueRecord logs an
// error and returns 0.
func (w *positionWriter) continueRecord(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	start, err := w.stored.Continue(s)
	gap, ok := errors.AsType[*checkpoint.GapError](err)
	if !ok || w.store != nil || w.stored.SystemID != s.SystemID {
		return start, err
	}
	w.log.ErrorContext(ctx, "the slot was advanced by another process, rows may not have been delivered",
		slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.String("reason", gap.Reason))
	return 0, nil
}

// startTenure makes t the Tracker whose position is written. t must not have read anything.
func (w *positionWriter) startTenure(t *checkpoint.Tracker) {
	w.acceptGap = false
	w.copied.Store(false)
	w.snapshot.Store(nil)
	w.tracker = t
	t.Resume(w.next.Open)
	w.next.Term = w.stored.Term
	if w.state == recordObsolete {
		w.next.Term++
		signal(w.wake)
	}
	w.parked.startTenure(w.stored, w.next)
}

// resumable returns how many rows of the transaction at commitLSN a new record would contain as
// acknowledged.
func (w *positionWriter) resumable(commitLSN pglogrepl.LSN) int {
	if p := w.tracker.Prefix(); w.store != nil && p.CommitLSN == commitLSN {
		return int(p.Rows)
	}
	return 0
}

// confirmedPosition returns the position to confirm to Postgres, and wakes run if the Tracker may be ahead
// of the record. It may be called from any goroutine.
func (w *positionWriter) confirmedPosition() pglogrepl.LSN {
	confirmed := w.tracker.Confirmed()
	reportable := pglogrepl.LSN(w.reportable.Load())
	if confirmed > reportable || w.tracker.Prefix() != (checkpoint.Prefix{}) {
		signal(w.wake)
	}
	return min(confirmed, reportable) // confirmed may be 0, for the slot's own position
}

// covered returns the place before and at which a relay that starts at the stored record reads no row again. ok is false if
// the record does not cover everything up to confirmed, and open. It may be called from any goroutine.
func (w *positionWriter) covered(confirmed pglogrepl.LSN, open checkpoint.Prefix) (end encode.Place, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.stored
	if w.state != recordCurrent || p.EndLSN < confirmed || p.EndLSN == confirmed && p.Open.Rows < open.Rows {
		return end, false
	}
	if p.Open.Rows > 0 {
		return encode.Place{Term: p.Term, LSN: p.Open.CommitLSN, Index: int(p.Open.Rows) - 1}, true
	}
	return encode.Place{Term: p.Term, LSN: p.EndLSN, Index: -1}, true
}

// run writes a record each time it is woken. It returns nil when ctx ends, or an error of the store, which wraps
// [sink.ErrSuperseded] if another process has become the owner.
func (w *positionWriter) run(ctx context.Context) error {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.busySince.Store(time.Now().UnixNano())
		_, err := w.writePosition(ctx)
		w.busySince.Store(0)
		unknown := errors.Is(err, errTimelineUnknown)
		if unknown && !w.unplaced {
			w.log.WarnContext(ctx, "positions wait, retrying", slog.Any("err", err))
		}
		if w.unplaced = unknown; unknown {
			continue // until the next status update; if the server is lost, another session finds out
		}
		if err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// waitingSince returns since when a confirmed position has been waiting for the store. It returns zero if
// none is waiting. It may be called from any goroutine.
func (w *positionWriter) waitingSince() time.Time {
	if since := w.busySince.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}

// writePosition writes the confirmed position if the record is behind, and returns when the store has
// acknowledged it. wrote is false if there was nothing to write.
func (w *positionWriter) writePosition(ctx context.Context) (wrote bool, err error) {
	w.mu.Lock()
	p, state := w.next, w.state
	w.mu.Unlock()
	snapshot := w.snapshot.Load() // before Confirmed, so that the position covers the snapshot
	confirmed := w.tracker.Confirmed()
	open := w.tracker.Prefix()
	copied := (p.Copying || p.Refill != nil) && w.copied.Load()
	further := open != p.Open && open.Rows > 0 && !p.Copying // an initial copy cannot be resumed
	if confirmed <= p.EndLSN && !further && !copied && state != recordObsolete {
		return false, nil
	}
	if err := w.timeline.check(ctx); err != nil {
		return false, err
	}
	p.EndLSN, p.Open, p.AdvancedAt = max(p.EndLSN, confirmed), open, time.Now()
	refilled := copied && p.Refill != nil
	if refilled {
		p = p.EndRefill()
	}
	if copied {
		p.Copying, p.CopyBegan = false, time.Time{}
	}
	p.Publication = cmp.Or(w.publication(), p.Publication)
	p.KeysParked = !w.parked.set.Empty() // after Confirmed, so that it counts the keys of what is confirmed
	if snapshot != nil {
		p = p.WithSnapshot(*snapshot)
	}
	if err := w.storeParked(ctx, false); err != nil { // before the position that covers their bad records
		return false, err
	}
	if err := w.storeRecord(ctx, p); err != nil {
		return false, err
	}
	w.snapshot.CompareAndSwap(snapshot, nil)
	if refilled && w.refilled != nil {
		w.refilled()
	}
	return true, nil
}

// lockWith locks a mutex, a channel with capacity 1, until the result is called.
func lockWith(ctx context.Context, mutex chan struct{}) (unlock func(), err error) {
	select {
	case mutex <- struct{}{}:
		return func() { <-mutex }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// storeRecord writes p and makes it the current record.
func (w *positionWriter) storeRecord(ctx context.Context, p checkpoint.Position) error {
	unlock, err := lockWith(ctx, w.recording)
	if err != nil {
		return err
	}
	defer unlock()
	return w.storeLocked(ctx, p)
}

// storeLocked is storeRecord. w.recording is locked.
func (w *positionWriter) storeLocked(ctx context.Context, p checkpoint.Position) error {
	if err := w.persist(ctx, &p); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored, w.next = p, p
	w.enterState(recordCurrent)
	return nil
}

// persist writes p to the store.
func (w *positionWriter) persist(ctx context.Context, p *checkpoint.Position) error {
	p.WrittenAt = time.Now()
	if w.store == nil {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.owner.Write(ctx, sink.PositionKey, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	return nil
}

// keepSnapshot records that every transaction that is visible in s is delivered. It may be called from
// any goroutine.
func (w *positionWriter) keepSnapshot(s checkpoint.Snapshot) { w.snapshot.Store(&s) }
