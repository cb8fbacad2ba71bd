package relay

import (
	"context"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
)

// FindLoss returns what a refill would resend now. It changes nothing. The error wraps [refill.ErrNothingLost] if
// the slot continues at the position record, and [catalog.ErrRefill] if the gap cannot be refilled.
func FindLoss(ctx context.Context, cfg Config, log *slog.Logger) (*refill.Loss, error) {
	cfg = cfg.WithDefaults()
	record, err := Recorded(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	return refill.Find(ctx, cfg.refill(), record, log)
}

// Recover refills the gap after a lost slot. It creates a new slot, or continues an interrupted
// refill, and returns nil when every missing row is acknowledged and the position record shows it. The next
// Run continues there. Call it instead of Run; it returns the same errors. If ctx ends before, it returns the
// cause.
func (r *Relay) Recover(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	r.planner.Recover()
	go func() { // ends with running
		select {
		case <-r.positions.Writer.Refilled():
			stop()
		case <-running.Done():
		}
	}()
	err := r.Run(running)
	if r.positions.Record.Stored().Refill == nil && running.Err() != nil && ctx.Err() == nil {
		return nil // a stop that was not clean only resends rows of the stream
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// refillLost prepares a refill after a session that ended with cause. The next session sends the rows. If the gap
// cannot be refilled, the error also wraps cause.
func (r *Relay) refillLost(ctx context.Context, cause error) error {
	if err := r.owner.Stop(ctx, nil); err != nil { // acknowledged rows that are recorded are not resent
		r.log.WarnContext(ctx, "the refill resends more rows than usual", slog.Any("err", err))
	}
	r.state.enter(ctx, refilling, nil)
	return r.planner.Prepare(ctx, cause)
}

func (cfg Config) refill() refill.Config {
	return refill.Config{
		Name: cfg.Name, Source: cfg.Source, Route: cfg.Route, Tables: cfg.Tables, Messages: cfg.Messages, Positions: cfg.Positions,
		Timeout: cfg.StartupTimeout, InitialCopy: cfg.InitialCopy, Where: cfg.InitialCopyWhere, SkipTo: cfg.SkipTo,
		Failover: cfg.SlotFailover, OnLoss: cfg.RefillOnLoss, Assume: cfg.Assume,
	}
}

// A planning is the [refill.Relay] of a Relay.
type planning struct{ *Relay }

// Announce logs what the relay waits for after err.
func (r planning) Announce(ctx context.Context, err error) { r.waits.announce(ctx, err) }

// AnnounceWait shows and logs what the relay waits for after err.
func (r planning) AnnounceWait(ctx context.Context, err error) { r.announceWait(ctx, err) }

// WarnLostTail calls WarnLostTail of the Owner.
func (r planning) WarnLostTail(ctx context.Context, record *checkpoint.Position, s checkpoint.Server) {
	r.owner.WarnLostTail(ctx, record, s)
}
