package refill

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// A CreationError is an error of Create.
type CreationError struct{ Err error }

// Error returns the reason.
func (e *CreationError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *CreationError) Unwrap() error { return e.Err }

// Create creates publication and slot, and opens an initial copy. It waits for transactions in progress without a limit. Its error
// is a [*CreationError].
func (p *Planner) Create(ctx context.Context) ([]catalog.Step, error) {
	steps, err := p.create(ctx)
	if err != nil {
		return nil, &CreationError{err}
	}
	return steps, nil
}

func (p *Planner) create(ctx context.Context) (steps []catalog.Step, err error) {
	lock, err := p.lockSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close(ctx)
	creating, waiting, cancel := p.whileWaiting(ctx, p.relay.AnnounceWait)
	defer cancel()
	if !p.cfg.InitialCopy {
		return lock.Setup(creating, waiting)
	}
	steps, p.copy, err = lock.SetupCopy(creating, p.cfg.Source, waiting)
	return steps, err
}

func (p *Planner) setup() catalog.SetupConfig {
	return catalog.SetupConfig{
		Conn: p.cfg.Source.Conn, Publication: p.cfg.Source.Publication, Slot: p.cfg.Source.Slot, Tables: p.cfg.Tables,
		Messages: len(p.cfg.Messages) > 0, Failover: p.cfg.Failover, Updates: p.cfg.Route.TakesUpdates(),
		Copy: catalog.CopyFilter{Where: p.cfg.Where, ID: p.cfg.Route.Columns.ID}, Sessions: &p.sessions,
	}
}
