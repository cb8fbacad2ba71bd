package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config configures an Owner.
type Config struct {
	Source replication.Config // of the sessions
	Tables *catalog.Tables    // the outbox tables
	Rows   rows.Config        // how dead letters become records again

	Broker    sink.Broker
	NewWriter func(sink.WriterConfig) sink.Writer // of the open sink
	Writer    sink.WriterConfig                   // of each ownership, without what only the Owner knows

	Place     position.Place // where positions are stored; zero: nowhere
	Store     *position.Store
	Positions *position.Positions // in Store
	Planner   *refill.Planner

	Pump            pump.Config // of each ownership, without what belongs to it
	DeadLetters     *pump.DeadLetters
	DeadLetterTopic string

	StartupTimeout time.Duration // for each attempt to start a session
	DrainTimeout   time.Duration // for the records in flight at a stop

	// CheckPublished is CheckPublished of the catalog as last read.
	CheckPublished func(recorded string) error

	// AnnounceWait shows and logs what the relay waits for after err.
	AnnounceWait func(ctx context.Context, err error)

	// SessionEnded is called when a session has ended by itself, before its connection is closed. It is called from any goroutine.
	SessionEnded func(ctx context.Context, err error)

	// Draining is called when the Owner starts to wait for the outcomes of the records in flight.
	Draining func(ctx context.Context)

	// Delivered is called when a transaction and everything before it is acknowledged. It may be nil.
	Delivered func(sinceCommit time.Duration, traceID string)

	Tracer *tracing.Tracer // nil: no spans
	Log    *slog.Logger
}

// An Owner starts sessions and ownerships. The goroutine of the relay's Run uses it; other goroutines may only call the methods
// whose comments say so.
type Owner struct {
	cfg       Config
	log       *slog.Logger
	positions *position.Positions

	ownership *ownership // nil: nothing was sent, and nothing is in flight
	sender    sender     // of the newest session
	standby   bool       // the newest session of ownership streams from a standby server, and goes on when that is promoted

	tracker      atomic.Pointer[checkpoint.Tracker] // of the current or last ownership; nil: there was none
	slotPosition atomic.Uint64                      // an LSN: the confirmed position of the slot

	warnedTimeline int32 // the server's timeline for which WarnLostTail has logged
	orderChecked   bool  // checkOrder was called; used by its goroutine only
}

// New returns an Owner that owns nothing yet.
func New(cfg Config) *Owner { return &Owner{cfg: cfg, log: cfg.Log, positions: cfg.Positions} }

// Owns reports whether there is an ownership: records may be in flight.
func (o *Owner) Owns() bool { return o.ownership != nil }

// Tracker returns the Tracker of the current or last ownership, or nil if there was none. It may be called from any goroutine.
func (o *Owner) Tracker() *checkpoint.Tracker { return o.tracker.Load() }

// SlotPosition returns the confirmed position of the slot: last confirmed to Postgres, or read from the catalog. It may be called
// from any goroutine.
func (o *Owner) SlotPosition() pglogrepl.LSN { return pglogrepl.LSN(o.slotPosition.Load()) }

// NoteConfirmed records that lsn was confirmed to Postgres. 0 confirms nothing. It may be called from any goroutine.
func (o *Owner) NoteConfirmed(lsn pglogrepl.LSN) {
	if lsn != 0 {
		o.slotPosition.Store(uint64(lsn))
	}
}

// Failure returns the error with which the ownership has failed between two sessions, if another
// session cannot recover from it.
func (o *Owner) Failure() error {
	if t := o.ownership; t != nil && fault.PatienceFor(t.cause()) == fault.Never {
		return t.cause()
	}
	return nil
}

// RunSession sends the rows that a session reads, after TakeOver. published is the publication as of its start, and c the catalog of
// its server. See [ownership.runSession].
func (o *Owner) RunSession(ctx context.Context, s *Session, published *catalog.Publication, c pump.Catalog, watch func(context.Context) error) error {
	t := o.ownership
	err := t.runSession(ctx, s, published, c, watch)
	if _, changed := errors.AsType[*checkpoint.PrefixError](err); changed && t.pump.Copying() {
		o.positions.Starter.StartOver()
	}
	if t.over {
		o.ownership = nil
	}
	if copied, ok := errors.AsType[*checkpoint.HistoryError](err); ok && o.positions.Starter.AcceptCopy(copied) {
		return fmt.Errorf("%w: %s", fault.ErrCopyAccepted, copied.Error())
	}
	if t.tracker.Recognized() {
		o.positions.Starter.RefuseCopies()
	}
	return err
}

// Stop ends the ownership, if there is one, after a session that ended with err, or with nil. It waits until the requests on the wire
// have their responses, and records the position. It returns the error with which the relay stops.
func (o *Owner) Stop(ctx context.Context, err error) error {
	t := o.ownership
	if t == nil {
		return err
	}
	o.ownership = nil
	unfinished := t.stopIdle(ctx)
	if err == nil {
		return unfinished
	}
	return t.undelivered(err)
}
