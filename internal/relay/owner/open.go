package owner

import (
	"context"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// OpenSession acquires the slot and starts the stream at the slot's own position: the Tracker recognizes what the server then resends.
func (o *Owner) OpenSession(ctx context.Context) (*Session, *replication.Stream, error) {
	opening, cancel := context.WithTimeout(ctx, o.cfg.StartupTimeout)
	defer cancel()
	stream, err := replication.Open(opening, o.cfg.Source, o.log)
	if err != nil {
		return nil, nil, err
	}
	id := slotIdentity{system: stream.System(), slot: o.cfg.Source.Slot}
	if err := catalog.Diagnose(opening, stream.Config(), stream.Start(opening, 0)); err != nil {
		_ = stream.Close(opening, 0)
		return nil, nil, o.endLostSender(ctx, stream, err)
	}
	o.sender = sender{id.system.ID, stream.PID()}
	s := o.startSession(ctx, stream, id, stream.PID())
	s.observer = catalog.Observe(stream.Config(), o.cfg.Tables)
	return s, stream, nil
}

// startSession starts a session whose positions the Owner notes.
func (o *Owner) startSession(ctx context.Context, stream source, id slotIdentity, pid uint32) *Session {
	return startSession(ctx, stream, id, pid, o.NoteConfirmed, o.cfg.SessionEnded)
}

// A sender identifies a WAL sender.
type sender struct {
	systemID string
	pid      uint32
}

// endLostSender terminates the WAL sender of the last session if it still holds the slot. err is the error
// of Start. endLostSender returns [fault.ErrLostSender] if it has terminated the WAL sender, and otherwise err.
func (o *Owner) endLostSender(ctx context.Context, stream *replication.Stream, err error) error {
	if !errors.Is(err, replication.ErrSlotInUse) || o.sender.pid == 0 || o.sender.systemID != stream.System().ID {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.StartupTimeout)
	defer cancel()
	ended, failed := catalog.EndSender(ctx, stream.Config().Conn, o.cfg.Source.Slot, o.sender.pid)
	switch {
	case failed != nil:
		return fmt.Errorf("%w; %w: %w", err, fault.ErrSenderKept, failed)
	case ended:
		return fault.ErrLostSender
	}
	return err
}
