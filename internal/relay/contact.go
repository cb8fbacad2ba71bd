package relay

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// firstContact reaches both sides at once, so that a mistake on one is told although the
// other is down, and creates what is wanted when both have answered: a slot that nobody
// reads holds the server's log.
func (c *Relay) firstContact(ctx context.Context, retry *retry) error {
	limited, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	g, both := errgroup.WithContext(limited)
	g.Go(func() error {
		reached, err := c.cfg.Sink.Open(both, c.log)
		if err != nil {
			return err
		}
		c.sink.Store(&reached)
		if c.cfg.PositionTopic == "" {
			return nil
		}
		c.recorder.register, err = reached.OpenPositions(both, c.cfg.PositionTopic, c.cfg.Name)
		return err
	})
	create := false
	g.Go(func() error {
		var last error // of an attempt that was not cut short
		for {
			state, err := c.prepare(both)
			if create = c.creates(state, err); create || err == nil {
				c.catalog = state
				retry.succeeded()
				return nil
			}
			if last == nil || both.Err() == nil {
				last = err
			}
			if faultOf(last).patience == never || retry.wait(both, last) != nil {
				return last
			}
		}
	})
	err := g.Wait()
	if err == nil && create {
		err = c.create(limited)
	}
	if err != nil {
		c.closeSink()
	}
	return err
}

// closeSink closes the sink, if the first contact has reached it.
func (c *Relay) closeSink() {
	if reached := c.sink.Load(); reached != nil {
		_ = (*reached).Close()
	}
}

// prepare reads the source's catalog and checks that what the publication sends can become
// records. With an error from that check it returns the catalog too.
func (c *Relay) prepare(ctx context.Context) (*catalog.State, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	state, err := catalog.Inspect(ctx, c.cfg.Source.Conn, c.cfg.Source.Publication, c.cfg.Source.Slot)
	if err != nil {
		return nil, err
	}
	state.Messages = len(c.cfg.Messages) > 0
	if err := state.Verify(); err != nil {
		return state, err
	}
	return state, c.checker.check(state, c.describe(ctx))
}

// creates reports whether err is that publication and slot, or the slot alone, do not exist and
// are to be created.
func (c *Relay) creates(state *catalog.State, err error) bool {
	switch {
	case state == nil || state.Slot != nil:
		return false
	case state.Publication != nil:
		return c.cfg.CreateSlot && errors.Is(err, replication.ErrSlotMissing)
	default:
		return c.cfg.Create && (errors.Is(err, replication.ErrPublication) || errors.Is(err, replication.ErrSlotMissing))
	}
}

// create makes what creates has found missing, unless a position is recorded.
func (c *Relay) create(ctx context.Context) error {
	if err := c.recorder.left(ctx, c.cfg.Source.Slot); err != nil {
		if state, again := c.prepare(ctx); again == nil { // another instance has made them meanwhile
			c.catalog = state
			return nil
		}
		return err
	}
	cfg := catalog.SetupConfig{
		Conn: c.cfg.Source.Conn, Publication: c.cfg.Source.Publication, Slot: c.cfg.Source.Slot, Tables: c.cfg.Tables,
		Messages: len(c.cfg.Messages) > 0, Failover: c.cfg.SlotFailover, Updates: c.cfg.Route.TakesUpdates(),
	}
	var steps []catalog.Step
	var err error
	if c.cfg.InitialCopy {
		if err := c.recorder.intend(ctx, c.catalog.SystemID, cfg.Slot); err != nil {
			return err
		}
		steps, c.copy, err = catalog.SetupCopy(ctx, c.cfg.Source, cfg)
	} else {
		steps, err = catalog.Setup(ctx, cfg)
	}
	for _, s := range steps {
		c.log.InfoContext(ctx, "set up", slog.String("object", s.Object), slog.String("action", s.Action))
		if s.Warning != "" {
			c.log.WarnContext(ctx, "not set up as wanted", slog.String("object", s.Object), slog.String("problem", s.Warning))
		}
	}
	if err == nil {
		c.catalog, err = c.prepare(ctx)
	}
	return err
}
