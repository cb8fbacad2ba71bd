package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// contactBothSides connects to the source and to the broker at the same time, so that it reports a
// configuration error on one side even if the other side is down. Only after both have responded, and unless
// the catalog has an error that it must not fix, it creates the position store, and the publication and the slot:
// Postgres retains WAL for a slot that nobody reads.
func (r *Relay) contactBothSides(ctx context.Context, retry *retry) error {
	limited, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	g, both := errgroup.WithContext(limited)
	g.Go(func() error {
		reached, err := r.openSink(both)
		if err != nil {
			return err
		}
		r.sink.Store(&reached)
		return nil
	})
	create, system := false, ""
	var cause error
	g.Go(func() error {
		var last error // of an attempt that did not time out
		for {
			state, err := r.readCatalog(both)
			if state != nil {
				system = state.SystemID
			}
			if create = r.needsSetup(state, err); create || err == nil {
				r.catalog, cause = state, err
				retry.reset()
				return nil
			}
			if last == nil || !isOver(both) && !errors.Is(err, context.DeadlineExceeded) {
				last = err
			}
			if fault.PatienceFor(last) == fault.Never {
				return last
			}
			r.state.enter(ctx, firstContact, last)
			if retry.backOff(both, last) != nil {
				return last
			}
		}
	})
	err := g.Wait()
	if err == nil {
		err = r.store.Open(limited, *r.sink.Load())
	}
	if err == nil && create {
		r.state.enter(ctx, setUp, nil)
		err = r.setUpSource(ctx, cause, retry)
	}
	if err != nil {
		r.closeSink()
	}
	return r.explainMissing(ctx, err, system)
}

// explainMissing returns err, with which the relay stops. If that is that the server with the given system identifier has no slot, and
// the position record is of another server, the result says so.
func (r *Relay) explainMissing(ctx context.Context, err error, system string) error {
	if !errors.Is(err, replication.ErrSlotMissing) || r.cfg.Positions.IsZero() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, position.Timeout)
	defer cancel()
	found, unread := r.store.ReadFrom(ctx, r.cfg.Sink)
	if unread != nil || found.Position == nil {
		return err
	}
	return cmp.Or(r.findElsewhere(err, found.Position, system), err)
}

// findElsewhere returns an error if err says that the server with the given system identifier has no slot, and record is of another
// server. Such a slot was not lost, and a refill would refuse.
func (r *Relay) findElsewhere(err error, record *checkpoint.Position, system string) error {
	if !errors.Is(err, replication.ErrSlotMissing) {
		return nil
	}
	return record.Elsewhere(checkpoint.Server{SystemID: system, Slot: r.cfg.Source.Slot})
}

// firstOpening limits the first attempt to open the sink. After it, the relay reports why it waits for the broker.
const firstOpening = 2 * time.Second

// openSink opens the sink, and retries until ctx ends.
func (r *Relay) openSink(ctx context.Context) (sink.Sink, error) {
	first, cancel := context.WithTimeout(ctx, firstOpening)
	defer cancel()
	reached, err := r.cfg.Sink.Open(first, r.log)
	if err == nil || !errors.Is(err, sink.ErrUnreachable) || isOver(ctx) {
		return reached, err
	}
	r.state.enter(ctx, firstContact, err)
	return r.cfg.Sink.Open(ctx, r.log)
}

// leastAttempt is the minimum timeout of an attempt to read the catalog. StartupTimeout may be shorter.
const leastAttempt = 2 * time.Second

// isOver reports whether ctx has ended or its deadline has passed. A dialer may detect the deadline first.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// closeSink closes the sink if it is open.
func (r *Relay) closeSink() {
	if reached := r.sink.Load(); reached != nil {
		_ = (*reached).Close()
	}
}

// readCatalog reads the source's catalog and checks that rows of the published tables can become records, if no older
// rows wait.
// If the check fails, it returns the catalog with the error. An attempt takes at most a third of
// StartupTimeout, so that there is time for a retry.
func (r *Relay) readCatalog(ctx context.Context) (*catalog.State, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.StartupTimeout/3, leastAttempt))
	defer cancel()
	state, err := catalog.Inspect(ctx, r.cfg.Source.Conn, r.cfg.Source.Publication, r.cfg.Source.Slot, r.named)
	if err != nil {
		return nil, err
	}
	state.Messages = len(r.cfg.Messages) > 0
	if err := state.Verify(); err != nil {
		return state, err
	}
	if err := r.tables.check(ctx, state, r.cfg.Rows().Describe(ctx), r.confirmed(state)); err != nil {
		return state, err
	}
	r.neighbours.Update(ctx, state, r.tables.hasColumns)
	return state, nil
}

// needsSetup reports whether setUpSource has something to do after the catalog was read with err.
func (r *Relay) needsSetup(state *catalog.State, err error) bool {
	return state != nil && (r.createsSource(state, err) || r.planner.Refills(err) || r.planner.Recovering() && err == nil)
}

// createsSource reports whether err says that publication and slot, or the slot alone, are missing, and
// the configuration has the relay create them.
func (r *Relay) createsSource(state *catalog.State, err error) bool {
	return r.cfg.Create.Allows(state) &&
		(errors.Is(err, replication.ErrSlotMissing) || state.Publication == nil && errors.Is(err, replication.ErrPublication))
}

// setUpSource creates what createsSource has found missing because of cause, unless there is a position
// record of a slot. If there is one, Run refills if that follows cause. Recover refills in any case.
func (r *Relay) setUpSource(ctx context.Context, cause error, retry *retry) error {
	if r.planner.Recovering() {
		r.catalog = nil
		return r.planner.Prepare(ctx, cause)
	}
	limited, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	if r.planner.Refills(cause) {
		found, err := r.positions.Recorder.Read(limited)
		if err != nil {
			return err
		}
		if found.Position != nil && found.Position.HadSlot() {
			system := r.catalog.SystemID
			r.catalog = nil // the first session reads it again
			return r.findElsewhere(cause, found.Position, system)
		}
	}
	if !r.createsSource(r.catalog, cause) {
		return cause
	}
	if exists, err := r.acquireStore(limited, retry); exists || err != nil {
		return err
	}
	steps, err := r.planner.Create(ctx)
	for _, s := range steps {
		r.log.InfoContext(ctx, "setup", slog.String("object", s.Object), slog.String("action", s.Action))
		if s.Warning != "" {
			r.log.WarnContext(ctx, "setup found a problem", slog.String("object", s.Object), slog.String("problem", s.Warning))
		}
	}
	if err == nil {
		r.catalog, err = r.readCatalog(ctx)
	}
	return err
}

// acquireStore makes this process the owner of the position store and announces the initial copy, before publication and slot are
// created. If several relays start at once, it retries while another one is the owner. exists is true if the other relay has
// created them.
func (r *Relay) acquireStore(ctx context.Context, retry *retry) (exists bool, err error) {
	for {
		err := r.positions.Starter.RequireNoRecord(ctx, r.cfg.Source.Slot)
		if errors.Is(err, replication.ErrSlotMissing) {
			err = r.catalog.ExplainLoss(err)
		}
		if err == nil && r.cfg.InitialCopy {
			err = r.positions.Starter.AnnounceCopy(ctx, r.catalog.SystemID, r.cfg.Source.Slot)
		}
		if err == nil {
			return false, nil
		}
		superseded := errors.Is(err, sink.ErrSuperseded)
		if superseded && retry.backOff(ctx, err) != nil {
			return false, err
		}
		state, missing := r.readCatalog(ctx)
		switch {
		case missing == nil:
			r.catalog = state
			return true, nil
		case !superseded:
			return false, err
		case state == nil || !r.createsSource(state, missing):
			return false, missing
		}
	}
}
