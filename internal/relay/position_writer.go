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

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// PositionTopic is the default of [Config.PositionTopic].
const PositionTopic = "outbox-cdc.positions"

// A positionWriter writes the confirmed position to the sink's position store, as the position
// record, and with it who owns the slot: see [checkpoint.Position]. The stream confirms to Postgres
// only a position that is stored there. So the slot is never ahead of the record, and a start that
// finds it ahead knows that rows may be missing.
//
// A tenure passes through these states:
//
//	state           the record                     confirmed to Postgres   the next write
//	recordUnread    not compared with the slot     nothing                 announceCopy, claim
//	recordCurrent   the tenure starts at it,       the record's position   when the Tracker confirms
//	                or has written it                                      a later position
//	recordObsolete  missing, not used, or of an    nothing                 at once, in the next term
//	                older timeline: the tenure
//	                starts at another position
//
//	claim: any → recordUnread
//	chooseStart: recordUnread → recordCurrent, recordObsolete
//	run: any → recordCurrent
//
// Without a store the record is kept in memory.
//
// A positionWriter outlives tenures. While run runs, other goroutines may call survey, continues,
// confirmedPosition, keepSnapshot and markCopied only.
type positionWriter struct {
	log       *slog.Logger
	store     sink.PositionStore // nil: there is no record outside of this process
	writer    string             // of the present claim, or the first: a UUID
	acceptGap bool               // the first tenure may start after a gap

	mu     sync.Mutex // while run runs: it writes, and others read
	state  recordState
	stored checkpoint.Position // the record, as it was last read or written; zero: there is none
	next   checkpoint.Position // what the next record is made from

	foreign bool // a value that is no position record is logged

	tracker   *checkpoint.Tracker // the tenure's
	replace   []string            // writers whose records the present claim replaces
	unwatched bool                // that watchClaims cannot read is logged
	tried     int64               // the highest claim of this process, which may or may not be stored

	reportable atomic.Uint64                       // an LSN: the record's in state recordCurrent, else 0
	busySince  atomic.Int64                        // since when run uses the store, in nanoseconds of the time of day; 0: it does not
	wake       chan struct{}                       // cap 1: the Tracker may be ahead of the record
	copied     atomic.Bool                         // the initial copy that the record announces is delivered
	snapshot   atomic.Pointer[checkpoint.Snapshot] // the newest one delivered that is in no record yet
}

// A recordState says what the position record is to the present tenure.
type recordState int

const (
	recordUnread recordState = iota
	recordCurrent
	recordObsolete
)

func newPositionWriter(store sink.PositionStore, acceptGap bool, log *slog.Logger) *positionWriter {
	return &positionWriter{log: log, store: store, writer: uuid.NewString(), acceptGap: acceptGap, wake: make(chan struct{}, 1)}
}

// enterState makes s the state and publishes which position may be confirmed in it.
func (w *positionWriter) enterState(s recordState) {
	w.state = s
	reportable := pglogrepl.LSN(0)
	if s == recordCurrent {
		reportable = w.stored.EndLSN
	}
	w.reportable.Store(uint64(reportable))
}

// requireNoRecord returns an error if there is a record: a slot that has a record and is missing
// must not be re-created as if it had never existed.
func (w *positionWriter) requireNoRecord(ctx context.Context, slot string) error {
	found, err := w.survey(ctx)
	if err != nil || found.position == nil {
		return err
	}
	w.stored = *found.position
	if w.stored.EndLSN == 0 || w.acceptGap {
		return nil
	}
	return fmt.Errorf("%w: publication and slot %q are gone; what was committed since %s, the position recorded at %s, cannot be read any more",
		replication.ErrSlotMissing, slot, w.stored.EndLSN, w.stored.WrittenAt.UTC().Format(time.RFC3339))
}

// announceCopy writes, before the slot is created, a record that an initial copy must be delivered.
func (w *positionWriter) announceCopy(ctx context.Context, systemID, slot string) error {
	p := checkpoint.Position{SystemID: systemID, Slot: slot, Copying: true, Term: w.stored.Term + 1}
	if err := w.storeRecord(ctx, p); err != nil {
		return err
	}
	w.acceptGap = false // a new slot has no gap
	return nil
}

// copyPending reports whether the tenure must deliver an initial copy before the stream.
func (w *positionWriter) copyPending() bool { return w.next.Copying }

// markCopied notes that the initial copy is delivered. It may be called from any goroutine.
func (w *positionWriter) markCopied() {
	w.copied.Store(true)
	signal(w.wake)
}

// chooseStart returns the position at which a tenure that finds s starts, after its claim: the
// record's, the fork if a promoted server left the record's timeline before it, or 0 for the slot's
// own. Its *checkpoint.GapError is final, unless the operator has accepted the gap.
func (w *positionWriter) chooseStart(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	var start pglogrepl.LSN
	if w.stored.EndLSN != 0 {
		var err error
		start, err = w.continueRecord(ctx, s)
		if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && w.acceptGap {
			w.log.WarnContext(ctx, "gap accepted: what was committed in between may never have been delivered",
				slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.String("reason", gap.Reason))
		} else if err != nil {
			return 0, err
		}
	}
	w.next = w.stored
	if w.stored.Copying && w.acceptGap {
		w.log.WarnContext(ctx, "gap accepted: rows of the initial copy may never have been delivered")
		w.next.Copying = false
	}
	w.next = w.next.Moved(s, cmp.Or(start, s.Confirmed))
	if start != 0 && w.stored.Timeline == s.Timeline {
		w.enterState(recordCurrent)
	} else {
		w.enterState(recordObsolete)
	}
	return start, nil
}

// continueRecord returns where a server that is found as s may be read from, after the record. A
// slot that is ahead of a record that only this process has is no gap for sure: another instance may
// have had it.
func (w *positionWriter) continueRecord(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	start, err := w.stored.Continue(s)
	gap, ok := errors.AsType[*checkpoint.GapError](err)
	if !ok || w.store != nil || w.stored.SystemID != s.SystemID {
		return start, err
	}
	w.log.ErrorContext(ctx, "the slot does not continue where this process has ended: unless another instance had it, rows were not delivered",
		slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.String("reason", gap.Reason))
	return 0, nil
}

// startTenure makes t, which has read nothing yet, the Tracker whose position is written.
func (w *positionWriter) startTenure(t *checkpoint.Tracker) {
	w.acceptGap = false
	w.copied.Store(false)
	w.snapshot.Store(nil)
	w.tracker = t
	t.Resume(w.next.Open)
	w.next.Term = w.stored.Term
	if w.state == recordObsolete {
		if w.stored.EndLSN != 0 { // otherwise the claim has begun the term
			w.next.Term++
		}
		signal(w.wake)
	}
}

// resumable returns how many rows of the transaction at commitLSN a record that is written now would
// name as acknowledged.
func (w *positionWriter) resumable(commitLSN pglogrepl.LSN) int {
	if p := w.tracker.Prefix(); w.store != nil && p.CommitLSN == commitLSN {
		return int(p.Rows)
	}
	return 0
}

// confirmedPosition returns the position to confirm to Postgres now, and wakes run if the Tracker
// may be ahead of the record. It may be called from any goroutine.
func (w *positionWriter) confirmedPosition() pglogrepl.LSN {
	confirmed := w.tracker.Confirmed()
	reportable := pglogrepl.LSN(w.reportable.Load())
	if confirmed > reportable || w.tracker.Prefix() != (checkpoint.Prefix{}) {
		signal(w.wake)
	}
	return min(confirmed, reportable) // a tenure may start at 0, which stands for the slot's own position
}

// run writes a record each time it is woken, until ctx ends (nil) or the store fails. Its error is
// errForeignClaim if another process has claimed the slot.
func (w *positionWriter) run(ctx context.Context) error {
	if err := w.dropReplaced(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		w.busySince.Store(time.Now().UnixNano())
		wrote, err := w.writePosition(ctx)
		if err == nil && wrote {
			err = w.watchClaims(ctx)
		}
		w.busySince.Store(0)
		if err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// waitingSince returns since when a confirmed position waits for the store, zero if none does. It may
// be called from any goroutine.
func (w *positionWriter) waitingSince() time.Time {
	if since := w.busySince.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}

// writePosition writes what is confirmed now, if the record does not say it yet, and returns when the
// store has acknowledged it. It reports whether there was something to write.
func (w *positionWriter) writePosition(ctx context.Context) (wrote bool, err error) {
	p := w.next
	snapshot := w.snapshot.Load() // before the position, which then covers it
	confirmed := w.tracker.Confirmed()
	open := w.tracker.Prefix()
	copied := p.Copying && w.copied.Load()
	further := open != p.Open && open.Rows > 0 && !p.Copying // an initial copy cannot be resumed
	if confirmed <= p.EndLSN && !further && !copied && w.state != recordObsolete {
		return false, nil
	}
	p.EndLSN, p.Open = max(p.EndLSN, confirmed), open
	p.Copying = p.Copying && !copied
	if snapshot != nil {
		p = p.WithSnapshot(*snapshot)
	}
	if err := w.storeRecord(ctx, p); err != nil {
		return false, err
	}
	w.snapshot.CompareAndSwap(snapshot, nil)
	return true, nil
}

// storeRecord makes p the record.
func (w *positionWriter) storeRecord(ctx context.Context, p checkpoint.Position) error {
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
	if err := w.store.Write(ctx, w.writer, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	return nil
}

// keepSnapshot notes that every transaction that s sees is delivered. It may be called from any
// goroutine.
func (w *positionWriter) keepSnapshot(s checkpoint.Snapshot) { w.snapshot.Store(&s) }
