package inbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Processor handles each event of a consumer once. Handle takes events from a broker. Run retries the
// events that failed. The Run function of an adapter, such as inboxfranz or inboxnats, calls both.
type Processor struct {
	db    DB
	cfg   Config
	sql   statements
	owner uuid.UUID // of the leases

	running atomic.Bool
	kick    chan struct{} // of capacity 1: there may be an event to retry
	stats   recorder

	mu       sync.Mutex
	attempts map[uuid.UUID]context.CancelCauseFunc // running retries, by event
	notFull  chan struct{}                         // closed while fewer than MaxWaiting events wait
	full     bool
}

// NewProcessor returns a Processor. It does not connect to the database.
func NewProcessor(db DB, cfg Config) (*Processor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	open := make(chan struct{})
	close(open)
	return &Processor{
		db: db, cfg: cfg, sql: newStatements(Store{Schema: cfg.Schema}), owner: uuid.New(),
		kick: make(chan struct{}, 1), stats: newRecorder(cfg.Handlers),
		attempts: make(map[uuid.UUID]context.CancelCauseFunc), notFull: open,
	}, nil
}

// Logger returns Config.Logger, for adapters.
func (p *Processor) Logger() *slog.Logger { return p.cfg.Logger }

// Handle handles e, or stores it in inbox_events for Run. If it returns nil, one of the two is
// committed, so you may commit the offset of the record. If it returns an error, the record must be
// handled again, by this or another processor, before any later record of its partition.
//
// If e has no ID, Handle sets ID and Type with Config.ParseEvent.
//
// Call Handle for the records of a partition one after the other, in offset order. Several goroutines
// may call it for different partitions, or, if the broker has none, for different keys. It blocks while the handler runs, while the database is
// unavailable, and while MaxWaiting events wait.
//
// When ctx is done, a running handler has Grace to finish: if it does, Handle returns nil. Otherwise
// Handle returns the cause of ctx. Errors that a retry cannot fix are returned at once: an
// [*EventError], [ErrNoTable], [ErrOldTable] or a lasting error of the server, such as a missing
// right. Do not continue with the next record then.
func (p *Processor) Handle(ctx context.Context, e Event) error {
	if e.ID == uuid.Nil {
		if err := p.cfg.ParseEvent(&e); err != nil {
			return err
		}
		if e.ID == uuid.Nil {
			return e.problem("the event has no id")
		}
	}
	if _, known := p.cfg.Handlers[e.Type]; !known && p.cfg.OnUnknownType == IgnoreUnknown {
		p.stats.count(e.Type, func(s *TypeStat) { s.Ignored++ })
		return nil
	}
	for outage := (outage{log: p.cfg.Logger}); ; {
		if err := p.awaitRoom(ctx); err != nil {
			return err
		}
		err := p.handleOrStore(ctx, e)
		if err == nil {
			outage.end(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if final(err) {
			return err
		}
		if err := outage.backOff(ctx, err); err != nil {
			return err
		}
	}
}

// handleOrStore is Handle without retries.
func (p *Processor) handleOrStore(ctx context.Context, e Event) error {
	work, done := p.withGrace(ctx)
	defer done()
	e.Attempt = 1
	began := time.Now()
	for {
		result, err := p.handleDirectly(work, e)
		if failed, ok := errors.AsType[*attemptError](err); ok {
			if work.Err() != nil {
				return context.Cause(work)
			}
			p.stats.failed(&e, began)
			return p.storeFailed(work, e, failed.err)
		}
		if err != nil {
			return err
		}
		switch result {
		case laneIsFree: // since the claim
			continue
		case handled:
			p.stats.handled(&e, began)
		case duplicate:
			p.stats.count(e.Type, func(s *TypeStat) { s.Duplicates++ })
		case waits:
			p.stats.count(e.Type, func(s *TypeStat) { s.Deferred++ })
		}
		return nil
	}
}

// A result is what happened to an event.
type result int

const (
	handled    result = iota
	duplicate         // handled before, or waiting already
	waits             // stored behind another event of its lane
	laneIsFree        // nothing is left in the lane to wait behind; nothing was done
)

// handleDirectly handles e in one transaction, or stores it behind the events of its lane. The error
// of a failed attempt is an *attemptError, with everything rolled back.
func (p *Processor) handleDirectly(ctx context.Context, e Event) (result, error) {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return 0, err
	}
	defer rollback(ctx, tx)
	lane := e.lane()
	fresh, err := p.claim(ctx, tx, p.sql.claimDirect, p.cfg.Consumer, pgUUID(e.ID), pgUUID(lane))
	if err != nil {
		return 0, err
	}
	if !fresh {
		found, err := p.store(ctx, tx, &e, entry{behindOnly: true})
		if err != nil {
			return 0, err
		}
		switch {
		case found.claimed || found.stored:
			return duplicate, nil
		case !found.busy:
			return laneIsFree, nil
		}
		return waits, explain("store an event", tx.Commit(ctx))
	}
	return handled, p.attempt(ctx, tx, e)
}

// storeFailed stores e, whose first attempt has failed, in inbox_events.
func (p *Processor) storeFailed(ctx context.Context, e Event, cause error) error {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	f := p.failure(e, cause)
	found, err := p.store(ctx, tx, &e, entry{attempts: 1, lastError: describe(cause), delay: f.RetryIn, park: f.Parked})
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return explain("store an event", err)
	}
	if found.claimed || found.stored { // another processor was faster
		p.stats.count(e.Type, func(s *TypeStat) { s.Duplicates++ })
		return nil
	}
	if found.busy { // it waits behind another event, which came first after all
		f.Parked, f.RetryIn = false, 0
	}
	p.report(ctx, f)
	p.wakeIn(f.RetryIn)
	return nil
}

// soon is the longest delay after which an event is retried when it is due. The retry after a longer one may be up to
// Config.PollInterval late, so that few timers run however many events wait.
const soon = time.Minute

// wakeIn makes Run look for events to retry after delay.
func (p *Processor) wakeIn(delay time.Duration) {
	if delay <= soon {
		time.AfterFunc(delay, p.wake)
	}
}

// wake makes Run look for events to retry.
func (p *Processor) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// withGrace returns a context that ends Config.Grace after ctx.
func (p *Processor) withGrace(ctx context.Context) (_ context.Context, done func()) {
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(p.cfg.Grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-hard.Done():
		}
	})
	return hard, func() {
		stop()
		cancel(nil)
	}
}

func (p *Processor) beginTx(ctx context.Context) (pgx.Tx, error) {
	tx, err := p.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	return tx, explain("begin", err)
}

// rollback does nothing after a commit. Its error does not matter: pgx closes a connection that could
// not roll back.
func rollback(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(ctx) }
