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
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// own makes this process the owner of the store, and returns what the store has then.
func (w *Writer) own(ctx context.Context) (*Found, error) {
	found, err := w.store.own(ctx)
	return w.remember(found), err
}

// RequireNoRecord makes this process the owner, and returns an error if there is a record. If the slot is missing but has a record,
// it was dropped, and the relay must not re-create it as if it had never existed.
func (w *Writer) RequireNoRecord(ctx context.Context, slot string) error {
	found, err := w.own(ctx)
	if err != nil || found.Position == nil {
		return err
	}
	w.stored = *found.Position
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

// AnnounceCopy writes a record that an initial copy is pending. It is called after RequireNoRecord, before the slot is created.
func (w *Writer) AnnounceCopy(ctx context.Context, systemID, slot string) error {
	p := checkpoint.Position{SystemID: systemID, Slot: slot, Copying: true, CopyBegan: time.Now().UTC(), Generation: w.stored.Generation + 1, Owner: w.stored.Owner, KeysParked: w.stored.KeysParked}
	if err := w.storeRecord(ctx, p); err != nil {
		return err
	}
	w.acceptGap = false // a new slot has no gap
	return nil
}

// OwnRecord makes this process the owner. The error wraps [sink.ErrSuperseded] if an earlier owner has replaced record.
func (w *Writer) OwnRecord(ctx context.Context, record *checkpoint.Position) error {
	found, err := w.own(ctx)
	if err != nil {
		return err
	}
	if p := found.Position; p == nil || !p.WrittenAt.Equal(record.WrittenAt) {
		return fmt.Errorf("%w: another relay has written the position record", sink.ErrSuperseded)
	}
	return nil
}

// BeginRefill writes the record of a refill of what record had not delivered, from a slot that was created on s at point. snapshot
// sees the rows of earlier transactions. It is called after OwnRecord.
func (w *Writer) BeginRefill(ctx context.Context, record checkpoint.Position, s checkpoint.Server, point pglogrepl.LSN, snapshot string) error {
	return w.storeRecord(ctx, record.BeginRefill(s, point, snapshot))
}

// BeginOwnership makes this process the owner, and writes the first record of an ownership on s: the newest one that is stored. When it
// returns, no earlier owner can write, and every later one finds the record.
func (w *Writer) BeginOwnership(ctx context.Context, s checkpoint.Server) error {
	first := w.store.owner == nil
	w.enterState(recordUnread)
	found, err := w.own(ctx)
	if err != nil {
		return err
	}
	p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, Generation: found.Parked.NextGeneration()}
	if found.Position != nil {
		p = *found.Position
		if first {
			w.log.InfoContext(ctx, "position record found", slog.String("end_lsn", p.EndLSN.String()),
				slog.Int("timeline", int(p.Timeline)), slog.Time("written_at", p.WrittenAt))
		}
	}
	p.KeysParked = found.Parked.HasKeys() || w.parked.record.HasKeys() // not an empty set, which may be lost
	p.Publication = cmp.Or(w.publication(), p.Publication)
	p.Owner++
	p.Stopped = nil
	if err := w.persist(ctx, &p); err != nil {
		return err
	}
	w.stored = p
	w.parked.beginOwnership(found)
	return nil
}

// CanContinue returns nil if the current ownership may continue on s, as long as this process is the owner: the timeline is the same,
// and the slot is not ahead of the record.
func (w *Writer) CanContinue(s checkpoint.Server) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch _, err := w.next.Continue(s); {
	case w.next.Timeline != s.Timeline:
		return ErrPromoted
	default:
		return err
	}
}

// ProveOwner writes the newest record again. The error wraps [sink.ErrSuperseded] if another process has become the owner.
func (w *Writer) ProveOwner(ctx context.Context) error {
	unlock, err := lockWith(ctx, w.recording)
	if err != nil {
		return err
	}
	defer unlock()
	w.mu.Lock()
	next := w.next
	w.mu.Unlock()
	return w.storeLocked(ctx, next)
}

// ChooseStart returns the position at which an ownership on s starts, after BeginOwnership: that of the record, or
// the fork if the server left the record's timeline before it, or 0 for the slot's own position. A
// *checkpoint.GapError stops the relay; if the operator has accepted the gap, ChooseStart only logs it.
func (w *Writer) ChooseStart(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	var start pglogrepl.LSN
	if w.stored.EndLSN != 0 || w.stored.Refill != nil {
		var err error
		start, err = w.continueRecord(ctx, s)
		if gap, ok := errors.AsType[*checkpoint.GapError](err); ok && w.acceptGap {
			w.log.WarnContext(ctx, "gap accepted, rows in between may not have been delivered",
				slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.Any("reason", gap.Reason))
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
func (w *Writer) continueRecord(ctx context.Context, s checkpoint.Server) (pglogrepl.LSN, error) {
	start, err := w.stored.Continue(s)
	gap, ok := errors.AsType[*checkpoint.GapError](err)
	if !ok || w.store.values != nil || w.stored.SystemID != s.SystemID {
		return start, err
	}
	w.log.ErrorContext(ctx, "the slot was advanced by another process, rows may not have been delivered",
		slog.String("from", w.stored.EndLSN.String()), slog.String("to", s.Confirmed.String()), slog.Any("reason", gap.Reason))
	return 0, nil
}
