package position

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
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Writer writes the position record to the position store, as its owner: see [checkpoint.Position]. The stream confirms to Postgres only positions that
// are stored there. So the slot is never ahead of the record; if a start finds it ahead, rows may be
// missing.
//
// An ownership passes through these states:
//
//	state           the record                     confirmed to Postgres   the next write
//	recordUnread    not compared with the slot     nothing                 AnnounceCopy, BeginOwnership
//	recordCurrent   the ownership starts at it,       the record's position   when the Tracker confirms
//	                or has written it                                      a later position
//	recordObsolete  missing, not used, or of an    nothing                 at once, in the next generation
//	                older timeline: the ownership
//	                starts at another position
//
//	BeginOwnership: any → recordUnread
//	ChooseStart: recordUnread → recordCurrent, recordObsolete
//	Run, ProveOwner: any → recordCurrent
//
// Without a store the record is kept in memory.
//
// A Writer outlives ownerships. While Run runs, other goroutines may only call Read, CanContinue, ProveOwner, and the methods whose
// comments say so. The others are called by the goroutine that begins ownerships.
type Writer struct {
	log         *slog.Logger
	store       *Store
	parked      *ParkedKeys
	deadLetters string                 // where records of parked keys are, for messages
	acceptGap   bool                   // the first ownership may start after a gap
	startOver   bool                   // StartOver was called since the last ownership started
	published   atomic.Pointer[string] // see SetPublication; nil: not yet
	timeline    timelineCheck          // of positions that are recorded
	refilled    chan struct{}          // see Refilled

	recording chan struct{} // cap 1: held while the record is written
	mu        sync.Mutex    // Run writes state, stored, next and written; other goroutines read them
	state     recordState
	stored    checkpoint.Position // the record as last read or written; zero: none
	next      checkpoint.Position // the base of the next record
	written   checkpoint.Position // the newest record that this process has tried to write; zero: none

	unplaced bool // run has logged errTimelineUnknown

	tracker *checkpoint.Tracker // of the ownership

	reportable atomic.Uint64                       // an LSN: that of the record in state recordCurrent, otherwise 0
	busySince  atomic.Int64                        // when Run started to use the store, in Unix nanoseconds; 0: Run does not use it
	wake       chan struct{}                       // cap 1; the Tracker may be ahead of the record
	copied     atomic.Bool                         // the pending initial copy or refill is delivered
	snapshot   atomic.Pointer[checkpoint.Snapshot] // newest delivered snapshot that is not in the record
}

// A recordState says how the position record relates to the current ownership.
type recordState int

const (
	recordUnread recordState = iota
	recordCurrent
	recordObsolete
)

// A Config says how positions are stored.
type Config struct {
	Store *Store

	// AcceptGap lets the first ownership start although the slot does not continue at the record.
	AcceptGap bool

	// Parked is the set of parked keys. Nil: the relay parks no keys.
	Parked *parking.Set

	// DeadLetters is the destination of the records of parked keys, for messages.
	DeadLetters string

	Log *slog.Logger
}

// NewWriter returns a Writer. Its Store need not be open yet.
func NewWriter(cfg Config) *Writer {
	return &Writer{
		log: cfg.Log, store: cfg.Store, deadLetters: cfg.DeadLetters, acceptGap: cfg.AcceptGap,
		parked:    &ParkedKeys{store: cfg.Store, set: cfg.Parked, storing: make(chan struct{}, 1)},
		recording: make(chan struct{}, 1), wake: make(chan struct{}, 1), refilled: make(chan struct{}, 1),
	}
}

// ParkedKeys returns where the parked keys are stored.
func (w *Writer) ParkedKeys() *ParkedKeys { return w.parked }

// Owner returns the owner of the store in the current ownership. It is nil without a store.
func (w *Writer) Owner() sink.Owner { return w.store.owner }

// Stored returns the record as last read or written. It is called while Run does not run.
func (w *Writer) Stored() checkpoint.Position { return w.stored }

// Next returns the base of the next record, after ChooseStart. It is called while Run does not run. If its Copying is set, the ownership
// must deliver an initial copy before the stream, and if it has a Refill, that.
func (w *Writer) Next() checkpoint.Position { return w.next }

// Read reads the store. If the store has lost the position record, the result has what this process has stored.
func (w *Writer) Read(ctx context.Context) (*Found, error) {
	found, err := w.store.Read(ctx)
	return w.remember(found), err
}

// remember adds the position that this process has stored to found, if it has none.
func (w *Writer) remember(found *Found) *Found {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stored := w.stored; found != nil && found.Position == nil && (stored.EndLSN != 0 || stored.Copying || stored.Refill != nil) {
		found.Position = &stored
	}
	return found
}

// SetPublication sets what the next records say about the publication: see [catalog.State.Published]. It may be called from any
// goroutine.
func (w *Writer) SetPublication(published string) { w.published.Store(&published) }

// publication returns what a record says about the publication.
func (w *Writer) publication() string {
	if p := w.published.Load(); p != nil {
		return *p
	}
	return ""
}

// StartOver has the next ownership not continue an interrupted refill, because its rows have changed.
func (w *Writer) StartOver() { w.startOver = true }

// Refilled has a value when a record says that a refill is done.
func (w *Writer) Refilled() <-chan struct{} { return w.refilled }

// StartSession has positions recorded only if the server from which stream reads is still on the timeline of the session.
func (w *Writer) StartSession(ctx context.Context, stream *replication.Stream) {
	w.timeline.startSession(ctx, stream)
}

// Close closes the connection on which the timeline is read.
func (w *Writer) Close(ctx context.Context) { w.timeline.stop(ctx) }

// enterState sets the state, and the position that may be confirmed in it.
func (w *Writer) enterState(s recordState) {
	w.state = s
	reportable := pglogrepl.LSN(0)
	if s == recordCurrent {
		reportable = w.stored.EndLSN
	}
	w.reportable.Store(uint64(reportable))
}

// MarkCopied records that the initial copy or the refill is delivered. It may be called from any goroutine.
func (w *Writer) MarkCopied() {
	w.copied.Store(true)
	signal(w.wake)
}

// StartOwnership makes t the Tracker whose position is written. t must not have read anything.
func (w *Writer) StartOwnership(t *checkpoint.Tracker) {
	w.acceptGap, w.startOver = false, false
	w.copied.Store(false)
	w.snapshot.Store(nil)
	w.tracker = t
	t.Resume(w.next.Open)
	w.next.Generation = w.stored.Generation
	if w.state == recordObsolete {
		w.next.Generation++
		signal(w.wake)
	}
	w.parked.startOwnership(w.stored, w.next)
}

// Resumable returns how many rows of the transaction at commitLSN a new record would contain as
// acknowledged.
func (w *Writer) Resumable(commitLSN pglogrepl.LSN) int {
	if p := w.tracker.Prefix(); w.store.values != nil && p.CommitLSN == commitLSN {
		return int(p.Rows)
	}
	return 0
}

// Confirmed returns the position to confirm to Postgres, and wakes Run if the Tracker may be ahead
// of the record. It may be called from any goroutine.
func (w *Writer) Confirmed() pglogrepl.LSN {
	confirmed := w.tracker.Confirmed()
	reportable := pglogrepl.LSN(w.reportable.Load())
	if confirmed > reportable || w.tracker.Prefix() != (checkpoint.Prefix{}) {
		signal(w.wake)
	}
	return min(confirmed, reportable) // confirmed may be 0, for the slot's own position
}

// Covered returns the place before and at which a relay that starts at the stored record reads no row again. ok is false if
// the record does not cover everything up to confirmed, and open. It may be called from any goroutine.
func (w *Writer) Covered(confirmed pglogrepl.LSN, open checkpoint.Prefix) (end encode.Place, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.stored
	if w.state != recordCurrent || p.EndLSN < confirmed || p.EndLSN == confirmed && p.Open.Rows < open.Rows {
		return end, false
	}
	if p.Open.Rows > 0 {
		return encode.Place{Generation: p.Generation, LSN: p.Open.CommitLSN, Index: int(p.Open.Rows) - 1}, true
	}
	return encode.Place{Generation: p.Generation, LSN: p.EndLSN, Index: -1}, true
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

// WaitingSince returns since when a confirmed position has been waiting for the store. It returns zero if
// none is waiting. It may be called from any goroutine.
func (w *Writer) WaitingSince() time.Time {
	if since := w.busySince.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}

// Write writes the confirmed position if the record is behind, and returns when the store has
// acknowledged it. wrote is false if there was nothing to write.
func (w *Writer) Write(ctx context.Context) (wrote bool, err error) {
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
	if err := w.parked.Store(ctx, false); err != nil { // before the position that covers their bad records
		return false, err
	}
	if err := w.storeRecord(ctx, p); err != nil {
		return false, err
	}
	w.snapshot.CompareAndSwap(snapshot, nil)
	if refilled {
		signal(w.refilled)
	}
	return true, nil
}

// storeRecord writes p and makes it the current record.
func (w *Writer) storeRecord(ctx context.Context, p checkpoint.Position) error {
	unlock, err := lockWith(ctx, w.recording)
	if err != nil {
		return err
	}
	defer unlock()
	return w.storeLocked(ctx, p)
}

// storeLocked is storeRecord. w.recording is locked.
func (w *Writer) storeLocked(ctx context.Context, p checkpoint.Position) error {
	if err := w.persist(ctx, &p); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored, w.next = p, p
	w.enterState(recordCurrent)
	return nil
}

// RecordStop adds to the record why the relay stops by itself. It is called after the last ownership. A process that has not become the
// owner writes nothing; the error wraps [sink.ErrSuperseded] if another one has become it since.
func (w *Writer) RecordStop(ctx context.Context, stop checkpoint.Stop) error {
	unlock, err := lockWith(ctx, w.recording)
	if err != nil {
		return err
	}
	defer unlock()
	w.mu.Lock()
	p := w.written // not an older one: that attempt may have succeeded without an answer
	w.mu.Unlock()
	if p.SystemID == "" {
		return nil
	}
	p.Stopped = &stop
	return w.persist(ctx, &p)
}

// persist writes p to the store.
func (w *Writer) persist(ctx context.Context, p *checkpoint.Position) error {
	p.WrittenAt = time.Now()
	if w.store.values == nil {
		return nil
	}
	w.mu.Lock()
	w.written = *p
	w.mu.Unlock()
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.store.owner.Write(ctx, sink.PositionKey, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	return nil
}

// KeepSnapshot records that every transaction that is visible in s is delivered. It may be called from
// any goroutine.
func (w *Writer) KeepSnapshot(s checkpoint.Snapshot) { w.snapshot.Store(&s) }

// Wake has Run write a record if the Tracker is ahead. It may be called from any goroutine.
func (w *Writer) Wake() { signal(w.wake) }

// signal wakes the goroutine that waits for c, a channel with capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
