package refill

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// Create creates publication and slot, and opens an initial copy. It waits for transactions in progress without a limit.
func (p *Planner) Create(ctx context.Context) (steps []catalog.Step, err error) {
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
