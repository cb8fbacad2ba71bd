package inbox

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Processor handles each event of a consumer once. Handle takes events from Kafka, Run tries those
// again that have failed; the package comment says how they work together. An adapter such as
// inboxsarama or inboxfranz calls both.
type Processor struct {
	db    DB
	cfg   Config
	sql   statements
	owner uuid.UUID // whose leases are ours

	running atomic.Bool
	kick    chan struct{} // of capacity 1: there may be something to try
	stats   recorder

	mu       sync.Mutex
	attempts map[uuid.UUID]context.CancelCauseFunc // those of Run that are under way, by event
	notFull  chan struct{}                         // closed while fewer than MaxWaiting events wait
	full     bool
}

// New returns a Processor. It does not look at the database.
func New(db DB, cfg Config) (*Processor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	open := make(chan struct{})
	close(open)
	return &Processor{
		db: db, cfg: cfg, sql: newStatements(cfg.Schema), owner: uuid.New(),
		kick: make(chan struct{}, 1), stats: newRecorder(cfg.Handlers),
		attempts: make(map[uuid.UUID]context.CancelCauseFunc), notFull: open,
	}, nil
}

// Handle handles e, or puts it into inbox_events for Run. When it returns nil one of the two has been
// committed, so the record's offset may be committed too. When it returns an error the record must
// be handled again, by this or by another processor, before any later one of its partition.
//
// Handle is called for the records of a partition one after the other, in the order of their
// offsets; for different partitions any number of goroutines may call it. It blocks while the
// handler runs, while the database cannot be reached, and while MaxWaiting events wait.
//
// When ctx is done Handle waits no longer, and returns its cause; a handler that runs has Grace to
// finish, with nil if it does. An [*EventError], [ErrNoTable], [ErrOldTable], or a refusal of the
// server's that will not change by itself, is returned at once: do not go on to the next record.
func (p *Processor) Handle(ctx context.Context, e Event) error {
	if err := e.check(); err != nil {
		return err
	}
	if _, known := p.cfg.Handlers[e.Type]; !known && p.cfg.Unknown == Ignore {
		p.stats.count(e.Type, func(s *TypeStat) { s.Ignored++ })
		return nil
	}
	for trouble := (trouble{log: p.cfg.Log}); ; {
		if err := p.awaitRoom(ctx); err != nil {
			return err
		}
		err := p.handle(ctx, e)
		if err == nil {
			trouble.over(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if final(err) {
			return err
		}
		if err := trouble.wait(ctx, err); err != nil {
			return err
		}
	}
}

// handle is Handle without patience.
func (p *Processor) handle(ctx context.Context, e Event) error {
	work, done := p.softened(ctx)
	defer done()
	e.Attempt = 1
	began := time.Now()
	for {
		result, err := p.direct(work, e)
		if failed, ok := errors.AsType[*attemptError](err); ok {
			if work.Err() != nil {
				return context.Cause(work)
			}
			p.stats.failed(&e, began)
			return p.failed(work, e, failed.err)
		}
		if err != nil {
			return err
		}
		switch result {
		case laneIsFree: // since it was looked at
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

// A result is what became of an event.
type result int

const (
	handled    result = iota
	duplicate         // it has been handled before, or waits already
	waits             // it waits behind another one
	laneIsFree        // nothing was done: there is nothing to wait behind any more
)

// direct handles e in one transaction, or puts it behind what waits in its lane. The failure of an
// attempt is an *attemptError, with everything rolled back.
func (p *Processor) direct(ctx context.Context, e Event) (result, error) {
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
		found, err := p.put(ctx, tx, &e, newcomer{behindOnly: true})
		if err != nil {
			return 0, err
		}
		switch {
		case found.claimed || found.here:
			return duplicate, nil
		case !found.busy:
			return laneIsFree, nil
		}
		return waits, explain("put an event to wait", tx.Commit(ctx))
	}
	return handled, p.attempt(ctx, tx, e)
}

// failed puts e, whose first attempt has failed with err, into inbox_events.
func (p *Processor) failed(ctx context.Context, e Event, cause error) error {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	delay, park := p.next(1, cause)
	found, err := p.put(ctx, tx, &e, newcomer{attempts: 1, lastError: describe(cause), delay: delay, park: park})
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return explain("put an event to wait", err)
	}
	if found.claimed || found.here { // another processor was faster
		p.stats.count(e.Type, func(s *TypeStat) { s.Duplicates++ })
		return nil
	}
	if park && !found.busy {
		p.noteParking(ctx, &e, cause)
	}
	p.wake()
	return nil
}

// next says how long an event waits after so many attempts, or that it is parked.
func (p *Processor) next(attempts int, cause error) (delay time.Duration, park bool) {
	if attempts > len(p.cfg.Delays) || errors.Is(cause, ErrUnknownType) {
		return 0, true
	}
	return rand.N(p.cfg.Delays[attempts-1] + 1), false
}

func (p *Processor) noteParking(ctx context.Context, e *Event, cause error) {
	p.stats.count(e.Type, func(s *TypeStat) { s.Parked++ })
	p.cfg.Log.WarnContext(ctx, "event parked", slog.String("consumer", p.cfg.Consumer), slog.String("id", e.ID.String()),
		slog.String("type", e.Type), slog.String("topic", e.Topic), slog.Int("attempts", e.Attempt), slog.Any("err", cause))
}

// wake makes Run look for what may be tried.
func (p *Processor) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// softened returns a context that ends Config.Grace after ctx does.
func (p *Processor) softened(ctx context.Context) (_ context.Context, done func()) {
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

// rollback does nothing to a transaction that has ended. What it says does not matter: pgx closes a
// connection that could not roll back.
func rollback(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(ctx) }
