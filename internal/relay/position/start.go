package position

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Starter decides whether and where an ownership starts, from what is stored, and writes its first record. The goroutine that
// begins ownerships calls it, while Run of the [Writer] does not run.
type Starter struct {
	store       *Store
	record      *Record
	recorder    *Recorder
	parked      *ParkedKeys
	writer      *Writer
	deadLetters string // where records of parked keys are, for messages
	acceptGap   bool   // the first ownership may start after a gap
	acceptsCopy bool   // the current ownership is the first one, and acceptGap was set for it
	copied      error  // see AcceptCopy; nil: no copy is accepted
	startOver   bool   // StartOver was called since the last ownership started
	log         *slog.Logger
}

// RequireNoRecord makes this process the owner, and returns an error if there is a record. If the slot is missing but has a record,
// it was dropped, and the relay must not re-create it as if it had never existed.
func (t *Starter) RequireNoRecord(ctx context.Context, slot string) error {
	found, err := t.recorder.becomeOwner(ctx)
	if err != nil || found.Position == nil {
		return err
	}
	t.record.setStored(*found.Position)
	if !found.Position.HadSlot() || t.acceptGap {
		return nil
	}
	lost := found.Position.BeforeRefill()
	return fmt.Errorf("%w: slot %q was dropped; rows committed after %s, the position recorded at %s, cannot be read from the WAL any more",
		replication.ErrSlotMissing, slot, lost.EndLSN, lost.WrittenAt.UTC().Format(time.RFC3339))
}

// AnnounceCopy writes a record that an initial copy is pending. It is called after RequireNoRecord, before the slot is created.
func (t *Starter) AnnounceCopy(ctx context.Context, systemID, slot string) error {
	stored := t.record.Stored()
	p := checkpoint.Position{SystemID: systemID, Slot: slot, Copying: true, CopyBegan: time.Now().UTC(), Generation: stored.Generation + 1, Owner: stored.Owner, KeysParked: stored.KeysParked, Began: stored.Began}
	if err := t.recorder.replaceRecord(ctx, p); err != nil {
		return err
	}
	t.acceptGap = false // a new slot has no gap
	return nil
}

// BeginOwnership makes this process the owner, and writes the first record of an ownership on s: the newest one that is stored. When it
// returns, no earlier owner can write, and every later one finds the record.
func (t *Starter) BeginOwnership(ctx context.Context, s checkpoint.Server) error {
	first := t.store.owner == nil
	t.record.setUnread()
	found, err := t.recorder.becomeOwner(ctx)
	if err != nil {
		return err
	}
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, Generation: found.Parked.NextGeneration()}
	if found.Position != nil {
		p = *found.Position
		if first {
			t.log.InfoContext(ctx, "position record found", slog.String("end_lsn", p.EndLSN.String()),
				slog.Int("timeline", int(p.Timeline)), slog.Time("written_at", p.WrittenAt))
		}
	}
	p.KeysParked = found.Parked.HasKeys() || t.parked.record.HasKeys() // not an empty set, which may be lost
	p.Publication = t.recorder.publication(&p)
	p.Owner++
	p.Stopped, p.Standby = nil, s.Standby
	if err := t.recorder.writeRecord(ctx, &p); err != nil {
		return err
	}
	t.record.setStored(p)
	t.parked.beginOwnership(found)
	return nil
}

// ChooseStart returns the position at which an ownership on s starts, after BeginOwnership: that of the record, or
// the fork if the server left the record's timeline before it, or 0 for the slot's own position. A
// *checkpoint.GapError stops the relay; if the operator has accepted the gap, ChooseStart only logs it.
func (t *Starter) ChooseStart(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	stored := t.record.Stored()
	var start pglogrepl.LSN
	if stored.EndLSN != 0 || stored.Refill != nil {
		var err error
		start, err = t.continueRecord(ctx, &stored, s)
		if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && t.acceptGap {
			t.log.WarnContext(ctx, "gap accepted, rows in between may not have been delivered",
				slog.String("from", stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.Any("reason", gap.Reason))
		} else if err != nil {
			return 0, err
		}
	}
	if t.copied != nil {
		t.log.WarnContext(ctx, "copy of the server accepted, rows that were delivered before it was made may be duplicated",
			slog.String("from", s.Confirmed.String()), slog.Any("reason", t.copied))
		start, t.copied = 0, nil
	}
	next := stored
	if stored.Copying && t.acceptGap {
		t.log.WarnContext(ctx, "gap accepted, rows of the initial copy may not have been delivered")
		next.Copying, next.CopyBegan = false, time.Time{}
	}
	if stored.Refill != nil && t.acceptGap {
		t.log.WarnContext(ctx, "gap accepted, rows of the refill may not have been delivered")
		next.Refill = nil
	}
	next = next.Moved(s, cmp.Or(start, s.Confirmed))
	if t.startOver {
		next.Open = checkpoint.Prefix{}
	}
	if start != 0 && stored.Timeline == s.Timeline {
		t.record.setNext(next, recordCurrent)
	} else {
		t.record.setNext(next, recordObsolete)
	}
	return start, nil
}

// continueRecord returns the position at which the record continues on s. Without a store, a slot ahead of
// the record need not be a gap, because another relay may have used the slot: then continueRecord logs an
// error and returns 0.
func (t *Starter) continueRecord(ctx context.Context, stored *checkpoint.Position, s checkpoint.Server) (pglogrepl.LSN, error) {
	start, err := stored.Continue(s)
	gap, ok := errors.AsType[*checkpoint.GapError](err)
	if !ok || t.store.values != nil || stored.SystemID != s.SystemID {
		return start, err
	}
	t.log.ErrorContext(ctx, "the slot was advanced by another process, rows may not have been delivered",
		slog.String("from", stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.Any("reason", gap.Reason))
	return 0, nil
}

// StartOver has the next ownership not continue an interrupted refill, because its rows have changed.
func (t *Starter) StartOver() { t.startOver = true }

// AcceptCopy has the next ownership start at the slot's own position, and reports whether the operator allows that: reason says that the
// server is a copy from before the record.
func (t *Starter) AcceptCopy(reason *checkpoint.HistoryError) bool {
	if !t.acceptsCopy {
		return false
	}
	t.copied = reason
	return true
}

// RefuseCopies ends what AcceptCopy allows: the server that the operator has meant is recognized.
func (t *Starter) RefuseCopies() { t.acceptsCopy = false }

// StartOwnership makes tracker the Tracker whose position is written. It must not have read anything.
func (t *Starter) StartOwnership(tracker *checkpoint.Tracker) {
	t.acceptsCopy = t.acceptGap
	t.acceptGap, t.startOver = false, false
	next := t.record.Next()
	tracker.Resume(next.Open)
	tracker.Recall(next.Last)
	t.writer.startOwnership(tracker)
	t.parked.startOwnership(t.record.Stored(), t.record.Next())
}
