package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// PositionTopic is the default of [Config.PositionTopic].
const PositionTopic = "outbox-cdc.positions"

// A positionWriter writes the confirmed position to the sink's position store, as the position
// record. The stream confirms to Postgres only a position that is stored there. So the slot is
// never ahead of the record, and a start that finds it ahead knows that rows may be missing.
//
// A session passes through these states:
//
//	state           the record                     confirmed to Postgres   the next write
//	recordUnread    not compared with the slot     nothing                 only announceCopy
//	recordCurrent   the session starts at it,      the record's position   when the Tracker confirms
//	                or has written it                                      a later position
//	recordBehind    the session starts after it    nothing                 at once
//	recordObsolete  missing, or not used: the      nothing                 at once, in the next term
//	                session starts at the slot's
//	                own position
//
//	readRecord: any → recordUnread
//	chooseStart: recordUnread → recordCurrent, recordObsolete
//	startSession: recordCurrent → recordBehind
//	storeRecord: any → recordCurrent
//
// Without a store there is no record, and the stream confirms what the Tracker does.
//
// A positionWriter outlives sessions. Its methods belong to the goroutine of [Relay.Run] between
// sessions and to that of run during one, except confirmedPosition, keepSnapshot and markCopied.
type positionWriter struct {
	log       *slog.Logger
	store     sink.PositionStore // nil: there is no record
	acceptGap bool               // the first session may start after a gap

	state   recordState
	stored  checkpoint.Position // the record, as it was last read or written; zero: there is none
	next    checkpoint.Position // what the next record is made from
	tracker *checkpoint.Tracker // the session's

	reportable atomic.Uint64                       // an LSN: the record's in state recordCurrent, else 0
	wake       chan struct{}                       // cap 1: the Tracker may be ahead of the record
	copied     atomic.Bool                         // the initial copy that the record announces is delivered
	snapshot   atomic.Pointer[checkpoint.Snapshot] // the newest one delivered that is in no record yet
}

// A recordState says what the position record is to the present session.
type recordState int

const (
	recordUnread recordState = iota
	recordCurrent
	recordBehind
	recordObsolete
)

func newPositionWriter(store sink.PositionStore, acceptGap bool, log *slog.Logger) *positionWriter {
	return &positionWriter{log: log, store: store, acceptGap: acceptGap, wake: make(chan struct{}, 1)}
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

// readRecord reads the record that an earlier process or another instance has left. Every
// session starts with it, after reading the slot, which may not be ahead of the record, and before
// reading the end of the WAL, which may not be behind it.
func (w *positionWriter) readRecord(ctx context.Context) error {
	w.enterState(recordUnread)
	found, err := w.newestRecord(ctx)
	if err != nil || found == nil {
		return err
	}
	if found.Term != w.next.Term && found.Term != w.stored.Term || found.Term == 0 {
		w.log.InfoContext(ctx, "position of an earlier run", slog.String("end_lsn", found.EndLSN.String()),
			slog.Int("timeline", int(found.Timeline)), slog.Time("written_at", found.WrittenAt))
	}
	w.stored = *found
	return nil
}

// newestRecord returns the record in the store, nil if there is none.
func (w *positionWriter) newestRecord(ctx context.Context) (*checkpoint.Position, error) {
	if w.store == nil {
		return nil, nil
	}
	records, err := w.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	p, err := checkpoint.NewestPosition(records)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPositionRecord, err)
	}
	return p, nil
}

// requireNoRecord returns an error if there is a record: a slot that has a record and is missing
// must not be re-created as if it had never existed.
func (w *positionWriter) requireNoRecord(ctx context.Context, slot string) error {
	if err := w.readRecord(ctx); err != nil {
		return err
	}
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

// copyPending reports whether the session must deliver an initial copy before the stream.
func (w *positionWriter) copyPending() bool { return w.next.Copying }

// markCopied notes that the initial copy is delivered. It may be called from any goroutine.
func (w *positionWriter) markCopied() {
	w.copied.Store(true)
	signal(w.wake)
}

// chooseStart returns the position at which a session that finds s starts: the record's, or 0 for
// the slot's own. Its *checkpoint.GapError is final, unless the operator has accepted the gap.
func (w *positionWriter) chooseStart(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	var start pglogrepl.LSN
	if w.stored.EndLSN != 0 {
		var err error
		start, err = w.stored.Continue(s)
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
	if start != 0 {
		w.enterState(recordCurrent)
		return start, nil
	}
	if w.stored.SystemID != s.SystemID || w.stored.Slot != s.Slot {
		w.next.Snapshots = nil
	}
	w.next.SystemID, w.next.Timeline, w.next.Slot, w.next.EndLSN = s.SystemID, s.Timeline, s.Slot, s.Confirmed
	w.enterState(recordObsolete)
	return 0, nil
}

// checkUnchanged returns errSlotChanged if the record is not the one that readRecord has found. It
// is called when the slot is ours: a session that starts from what is read now resends less.
func (w *positionWriter) checkUnchanged(ctx context.Context) error {
	found, err := w.newestRecord(ctx)
	if err != nil || found == nil {
		return err
	}
	if found.Term != w.stored.Term || found.Timeline != w.stored.Timeline || found.EndLSN != w.stored.EndLSN {
		return fmt.Errorf("%w: the position record went from %s to %s", errSlotChanged, w.stored.EndLSN, found.EndLSN)
	}
	return nil
}

// startSession makes t the Tracker whose position is written, in a session that has the slot.
func (w *positionWriter) startSession(t *checkpoint.Tracker) {
	w.acceptGap = false
	w.copied.Store(false)
	w.snapshot.Store(nil)
	w.tracker = t
	w.next.Term = max(w.stored.Term, 1)
	switch {
	case w.state == recordObsolete:
		w.next.Term = w.stored.Term + 1
	case w.stored.EndLSN < t.Confirmed(): // of this process: the last record could not be written
		w.enterState(recordBehind)
	}
	if w.state != recordCurrent {
		signal(w.wake)
	}
}

// confirmedPosition returns the position to confirm to Postgres now, and wakes run if the Tracker
// is ahead of the record. It may be called from any goroutine.
func (w *positionWriter) confirmedPosition() pglogrepl.LSN {
	confirmed := w.tracker.Confirmed()
	if w.store == nil {
		return confirmed
	}
	reportable := pglogrepl.LSN(w.reportable.Load())
	if confirmed > reportable {
		signal(w.wake)
	}
	return min(confirmed, reportable) // a session may start at 0, which stands for the slot's own position
}

// run writes a record each time it is woken, until ctx ends (nil) or the store fails.
func (w *positionWriter) run(ctx context.Context) error {
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		if err := w.writePosition(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
	}
}

// writePosition writes what is confirmed now, if the record does not say it yet, and returns when the
// store has acknowledged it.
func (w *positionWriter) writePosition(ctx context.Context) error {
	if w.store == nil {
		return nil
	}
	p := w.next
	snapshot := w.snapshot.Load() // before the position, which then covers it
	confirmed := w.tracker.Confirmed()
	copied := p.Copying && w.copied.Load()
	if confirmed <= p.EndLSN && !copied && w.state != recordObsolete {
		return nil
	}
	p.EndLSN = max(p.EndLSN, confirmed)
	p.Copying = p.Copying && !copied
	if snapshot != nil {
		p = p.WithSnapshot(*snapshot)
	}
	if err := w.storeRecord(ctx, p); err != nil {
		return err
	}
	w.snapshot.CompareAndSwap(snapshot, nil)
	return nil
}

// storeRecord makes p the record.
func (w *positionWriter) storeRecord(ctx context.Context, p checkpoint.Position) error {
	p.WrittenAt = time.Now()
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := w.store.Write(ctx, data); err != nil {
		return fmt.Errorf("record the position %s: %w", p.EndLSN, err)
	}
	w.stored, w.next = p, p
	w.enterState(recordCurrent)
	return nil
}

// writePositionLate is writePosition for a session that lost the slot some time ago. If another
// instance has written since, it does nothing: that record is the newer one, and what this session
// would write is resent in any case.
func (w *positionWriter) writePositionLate(ctx context.Context) error {
	found, err := w.newestRecord(ctx)
	if err != nil {
		return err
	}
	if found != nil && found.Term > w.next.Term {
		w.log.InfoContext(ctx, "position not recorded: another instance has the slot", slog.String("end_lsn", found.EndLSN.String()))
		return nil
	}
	return w.writePosition(ctx)
}

// keepSnapshot notes that every transaction that s sees is delivered. It may be called from any
// goroutine.
func (w *positionWriter) keepSnapshot(s checkpoint.Snapshot) { w.snapshot.Store(&s) }
