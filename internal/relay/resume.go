package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A slotIdentity is what a position is valid for. After a promotion or on another server the same
// LSN names other data.
type slotIdentity struct {
	system replication.System
	slot   string
}

// A resumePoint is where a session ended and the next one of the same slot starts.
type resumePoint struct {
	slot        slotIdentity
	confirmed   pglogrepl.LSN // every transaction that ends at or before it is acknowledged
	interrupted interruptedTx
}

// An interruptedTx is a transaction in which the connection was lost. Postgres resends all of it, the
// relay only the rows that were not acknowledged. The zero value is none.
type interruptedTx struct {
	commitLSN pglogrepl.LSN
	acked     int // its first rows, all acknowledged
}

// forSlot returns p if it belongs to that slot, otherwise 0/0, which stands for the slot's own
// position. It never returns a position that was merely read from the server: START_REPLICATION
// obeys one ahead of the slot and skips what lies between.
func (p resumePoint) forSlot(id slotIdentity) resumePoint {
	if p.slot != id {
		return resumePoint{slot: id}
	}
	return p
}

// checkSlotUnchanged returns errSlotChanged if the slot is not as read before, or the position record
// is not. It is called when the slot is ours: a session of another instance may have ended in
// between, or another server may answer now.
func (r *Relay) checkSlotUnchanged(ctx context.Context, before *catalog.Slot) error {
	if err := r.positions.checkUnchanged(ctx); err != nil {
		return err
	}
	now, err := catalog.Inspect(ctx, r.cfg.Source.Conn, r.cfg.Source.Publication, r.cfg.Source.Slot)
	if err != nil {
		return err
	}
	if now.Slot == nil || now.Slot.ConfirmedFlushLSN != before.ConfirmedFlushLSN {
		return fmt.Errorf("%w: the slot was at %s", errSlotChanged, before.ConfirmedFlushLSN)
	}
	return nil
}

// A startedStream is the stream of a session, and where it starts.
type startedStream struct {
	*replication.Stream

	from resumePoint  // its position is 0 for the slot's own
	copy *initialCopy // to be sent before the stream; nil: none
}

// openStream starts the stream of a session. It returns errSlotChanged if another instance has used
// the slot since it was read.
func (r *Relay) openStream(ctx context.Context, slot *catalog.Slot) (*startedStream, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	stream, err := replication.Open(ctx, r.cfg.Source, r.log)
	if err != nil {
		return nil, err
	}
	s := &startedStream{Stream: stream}
	if err := r.startStream(ctx, s, slot); err != nil {
		_ = stream.Close(ctx, 0)
		return nil, err
	}
	return s, nil
}

// startStream starts s where the position record, the last session and the operator want it.
func (r *Relay) startStream(ctx context.Context, s *startedStream, slot *catalog.Slot) (err error) {
	id := slotIdentity{system: s.System(), slot: r.cfg.Source.Slot}
	s.from, err = r.chooseStart(ctx, id, s.WALEnd(), slot)
	if _, gap := errors.AsType[*checkpoint.GapError](err); gap {
		// The slot and the record may have been read on both sides of a failover.
		return cmp.Or(r.checkSlotUnchanged(ctx, slot), err)
	}
	if err != nil {
		return err
	}
	if s.copy, err = r.planCopy(ctx, slot); err != nil {
		return err
	}
	if s.copy != nil {
		s.from.interrupted = interruptedTx{} // an interrupted copy is not resumed: its rows are read again
	}
	if err := r.skip.startSession(id, s.from.confirmed, slot.ConfirmedFlushLSN, s.WALEnd()); err != nil {
		return err
	}
	if err := catalog.Diagnose(ctx, s.Config(), s.Start(ctx, s.from.confirmed)); err != nil {
		return err
	}
	return r.checkSlotUnchanged(ctx, slot)
}

// chooseStart returns where the next session starts: where the last one of this process ended or at
// the position record, whichever is later, otherwise at 0/0, the slot's own position.
func (r *Relay) chooseStart(ctx context.Context, id slotIdentity, walEnd pglogrepl.LSN, slot *catalog.Slot) (resumePoint, error) {
	recorded, err := r.positions.chooseStart(ctx, checkpoint.Server{
		SystemID: id.system.ID, Timeline: id.system.Timeline, Slot: id.slot,
		Confirmed: slot.ConfirmedFlushLSN, WALEnd: walEnd,
	})
	if err != nil {
		return resumePoint{}, err
	}
	from := r.resumeFrom.forSlot(id)
	from.confirmed = max(from.confirmed, recorded)
	return from, nil
}
