package refill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Refills reports whether the relay refills after err.
func (p *Planner) Refills(err error) bool {
	return (p.recovering || p.cfg.OnLoss) && isLoss(err)
}

// isLoss reports whether err is one after which rows can be refilled.
func isLoss(err error) bool {
	_, gap := errors.AsType[*checkpoint.GapError](err)
	return errors.Is(err, replication.ErrSlotMissing) || errors.Is(err, replication.ErrSlotLost) || gap
}

// Prepare prepares a refill of what the slot of the position record has lost. cause may be nil. If another process prepares
// one, it waits, and the error of a long wait is an [*advisory.HeldError]. It waits for transactions in progress without a limit.
// Each other step but the reading of the tables has a time limit of its own.
func (p *Planner) Prepare(ctx context.Context, cause error) error {
	lock, err := p.lockSlot(ctx)
	if err != nil {
		return err
	}
	defer lock.Close(ctx)
	record, err := p.readRecord(ctx)
	switch {
	case err != nil:
		return err
	case record == nil && !p.recovering:
		return cause
	}
	err = p.startRefill(ctx, lock, record)
	if errors.Is(err, position.ErrWrittenLate) { // fewer rows are missing than record says
		if record, err = p.readRecord(ctx); err == nil {
			err = p.startRefill(ctx, lock, record)
		}
	}
	switch {
	case errors.Is(err, catalog.ErrRefill) && cause != nil:
		err = Unrefilled(cause, err)
	case errors.Is(err, ErrNothingLost) && !p.recovering: // another process has recovered it meanwhile
		err = nil
	}
	return err
}

// Unrefilled returns cause with the reason why nobody can refill after it. It does not say to refill, unless the instruction is
// another one already.
func Unrefilled(cause, reason error) error {
	if _, ok := errors.AsType[*catalog.UnrefillableError](cause); !ok {
		cause = unadvised{cause}
	}
	return fmt.Errorf("%w; %w", cause, reason)
}

func (p *Planner) lockSlot(ctx context.Context) (*catalog.SlotLock, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	return catalog.LockSlot(ctx, p.setup())
}

// startRefill makes the slot and the position record ready for a refill of what the slot of record has
// lost.
func (p *Planner) startRefill(ctx context.Context, lock *catalog.SlotLock, record *checkpoint.Position) error {
	cfg := p.cfg
	cfg.Source.Conn = lock.Conn()
	var l *Loss
	// Without the check, a connection that is lost in silence would hold up the refill.
	err := catalog.Meanwhile(ctx, catalog.CheckInterval, lock.Check, func(ctx context.Context) (err error) {
		l, err = Find(ctx, cfg, record, p.log)
		return err
	})
	if err != nil {
		return err
	}
	p.log.WarnContext(ctx, "refilling what the slot has not delivered", slog.String("recorded", l.Record.EndLSN.String()),
		slog.Time("recorded_at", l.Record.WrittenAt), slog.Int64("rows", l.Rows()), slog.Bool("continued", l.Resumes), slog.String("reason", l.Reason()))
	p.missing = uint64(l.Rows())
	if l.Resumes {
		return nil
	}
	if err := position.Try(ctx, position.Timeout, func(ctx context.Context) error { return p.positions.Recorder.OwnRecord(ctx, record) }); err != nil {
		return err
	}
	p.relay.WarnLostTail(ctx, &l.Record, l.server)
	p.positions.Recorder.SetPublication(l.state.Published()) // from before the new slot, so that a later change is detected
	creating, waiting, cancel := p.whileWaiting(ctx, p.relay.AnnounceWait)
	defer cancel()
	c, err := lock.RecreateSlot(creating, l.cfg.Source, l.state.Slot, l.missing, waiting)
	if err != nil {
		return err
	}
	p.Close(ctx)
	p.copy = c
	p.log.InfoContext(ctx, "set up", slog.String("object", fmt.Sprintf("slot %q", p.cfg.Source.Slot)), slog.String("action", "created again"),
		slog.String("from", c.Point.String()))
	until := c.Snapshot
	if l.missing.Assume.Restored { // it does not see the ids of the recorded server, so the refill can only start over
		until = ""
	}
	return position.Try(ctx, position.Timeout, func(ctx context.Context) error {
		return p.positions.Recorder.BeginRefill(ctx, l.begins, l.server, c.Point, until, l.missing.Assume.Unpruned)
	})
}

// readRecord returns the position record, or nil if there is none.
func (p *Planner) readRecord(ctx context.Context) (record *checkpoint.Position, err error) {
	err = position.Try(ctx, position.Timeout, func(ctx context.Context) error {
		found, err := p.positions.Recorder.Read(ctx)
		if err == nil {
			record = found.Position
		}
		return err
	})
	return record, err
}
