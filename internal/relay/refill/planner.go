package refill

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
)

// A Relay hears from a Planner.
type Relay interface {
	// Announce logs what the relay waits for after err.
	Announce(ctx context.Context, err error)

	// AnnounceWait shows and logs what the relay waits for after err.
	AnnounceWait(ctx context.Context, err error)

	// WarnLostTail warns about delivered rows that s, a promoted server, lacks. They end at record or later.
	WarnLostTail(ctx context.Context, record *checkpoint.Position, s checkpoint.Server)
}

// A Planner creates the slot of a relay, and plans what an ownership must send before the stream. The goroutine of the relay's Run uses it.
type Planner struct {
	cfg       Config
	positions *position.Positions
	relay     Relay
	log       *slog.Logger

	copy       *catalog.Copy // of the slot that this start has created; nil: none, or in use
	sessions   catalog.Sessions
	recovering bool   // Recover was called
	missing    uint64 // number of rows of the refill that was prepared last; 0: not counted, or already used
}

// NewPlanner returns a Planner that finds and stores in positions whether a copy is pending.
func NewPlanner(cfg Config, positions *position.Positions, relay Relay, log *slog.Logger) *Planner {
	return &Planner{cfg: cfg, positions: positions, relay: relay, log: log}
}

// Recover makes the relay refill now, whatever Config.OnLoss is.
func (p *Planner) Recover() { p.recovering = true }

// Recovering reports whether Recover was called.
func (p *Planner) Recovering() bool { return p.recovering }

// CheckFinished returns an error if record says that a copy or a refill was interrupted, and the configuration does not have this start
// continue it.
func (p *Planner) CheckFinished(record *checkpoint.Position) error {
	switch {
	case record.Refill != nil && !p.recovering && !p.cfg.OnLoss:
		return ErrUnfinished
	case record.Refill == nil && record.Copying && !p.cfg.InitialCopy:
		return ErrCopyUnfinished
	}
	return nil
}

// Plan returns the copy that the session must send before the stream, or nil.
func (p *Planner) Plan(ctx context.Context, s checkpoint.Server, slot *catalog.Slot) (*pump.Copy, error) {
	next := p.positions.Record.Next()
	if err := p.CheckFinished(&next); err != nil {
		return nil, err
	}
	if next.Refill != nil {
		return p.planRefill(next.Refill, s)
	}
	if !next.Copying {
		if p.cfg.InitialCopy && p.positions.Record.Stored().EndLSN == 0 && p.cfg.SkipTo == 0 { // with SkipTo, it takes over a slot whose rows were sent
			p.log.WarnContext(ctx, "no initial copy because the slot already existed, rows from before it are not sent")
		}
		return nil, nil
	}
	all := func(ctx context.Context) (*catalog.Copy, error) { return p.openCopy(ctx, nil) }
	return &pump.Copy{Point: slot.ConfirmedFlushLSN, Since: withMargin(next.CopyBegan), Open: all, MarkDone: p.positions.Writer.MarkCopied}, nil
}

// withMargin returns a time from when on rows may have been stored that were committed or sent after t. Clocks of relays differ, and
// a transaction that waits for a synchronous standby is invisible after its commit time. A zero time stays zero.
func withMargin(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-time.Minute)
}

// openCopy returns, the first time, the copy from the snapshot of the slot that this start has created, unless its connection
// was lost before this session. After that, it returns a copy of the current rows, or of the missing ones.
func (p *Planner) openCopy(ctx context.Context, missing *catalog.Missing) (*catalog.Copy, error) {
	if made := p.copy; made != nil {
		p.copy = nil
		checking, cancel := context.WithTimeout(ctx, catalog.CheckInterval)
		defer cancel()
		if made.Check(checking) == nil {
			return made, nil
		}
		made.Close(ctx)
	}
	if missing == nil {
		p.log.WarnContext(ctx, "the initial copy starts over, rows committed since the slot was created may be duplicated")
	}
	creating, waiting, cancel := p.whileWaiting(ctx, p.relay.Announce)
	defer cancel()
	return catalog.OpenCopy(creating, p.setup(), p.cfg.Source, missing, waiting)
}

// Close closes a copy that no session has used.
func (p *Planner) Close(ctx context.Context) {
	if p.copy != nil {
		p.copy.Close(ctx)
		p.copy = nil
	}
}

// planRefill returns the copy that resends what is left of a refill.
func (p *Planner) planRefill(refill *checkpoint.Refill, s checkpoint.Server) (*pump.Copy, error) {
	snapshot, reason := refill.Lost.Undelivered(s)
	if reason != "" { // the server was promoted since
		return nil, fmt.Errorf("%w: %s", catalog.ErrRefill, reason)
	}
	router, err := encode.New(refillRoute(p.cfg.Route))
	if err != nil {
		return nil, err
	}
	missing := &catalog.Missing{Delivered: snapshot.Text, Until: refill.Until, Earlier: refill.Earlier}
	total := p.missing
	p.missing = 0 // other rows may be missing the next time
	return &pump.Copy{
		Point: refill.Start, Since: withMargin(snapshot.CommitTime), Router: router, Total: total, MarkDone: p.positions.Writer.MarkCopied,
		Open: func(ctx context.Context) (*catalog.Copy, error) {
			if p.copy != nil && p.copy.Point != refill.Start { // another process has created the slot since
				p.Close(ctx)
			}
			return p.openCopy(ctx, missing)
		},
	}, nil
}

// whileWaiting returns a context for the creation of a slot. It ends after Config.Timeout unless waiting is called before, which
// passes on to report what the creation waits for.
func (p *Planner) whileWaiting(ctx context.Context, report func(context.Context, error)) (creating context.Context, waiting catalog.Waiting, cancel context.CancelFunc) {
	creating, end := context.WithCancelCause(ctx)
	limit := time.AfterFunc(p.cfg.Timeout, func() { end(context.DeadlineExceeded) })
	waiting = func(err error) {
		limit.Reset(p.cfg.Timeout)
		report(ctx, err)
	}
	return creating, waiting, func() {
		limit.Stop()
		end(nil)
	}
}
