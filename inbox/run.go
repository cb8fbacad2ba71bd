package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Run tries the events of inbox_events again that are due, those of crashed processors too, until
// ctx is done. Then it takes no more, gives the attempts that are under way Grace to finish, gives
// back its leases and returns nil. At least one processor of a consumer must be running for events
// to be tried again; there is no harm in all of them doing it. A second Run of the same Processor
// at the same time is refused.
//
// Run bears with a database that cannot be reached. It returns an error for what will not pass by
// itself: [ErrNoTable], [ErrOldTable], missing rights.
func (p *Processor) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("inbox: the processor is running already")
	}
	defer p.running.Store(false)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work, done := p.softened(ctx)
	defer done()

	var keeping, trying sync.WaitGroup
	keepers, stopKeepers := context.WithCancel(work)
	keeping.Go(func() { fail(p.repeat(keepers, p.cfg.Lease/3, p.renew)) })
	keeping.Go(func() { fail(p.repeat(keepers, censusInterval, p.takeCensus)) })
	err := p.dispatch(ctx, work, &trying)
	trying.Wait() // with the leases still being renewed
	stopKeepers()
	keeping.Wait()
	p.giveBack(work)
	if err == nil && final(context.Cause(ctx)) {
		err = context.Cause(ctx)
	}
	return err
}

// censusInterval is how often the events that wait are counted.
const censusInterval = 5 * time.Second

// dispatch starts an attempt for each event that is due, Config.Workers at a time, until ctx is done.
func (p *Processor) dispatch(ctx, work context.Context, trying *sync.WaitGroup) error {
	free := make(chan struct{}, p.cfg.Workers)
	for range p.cfg.Workers {
		free <- struct{}{}
	}
	poll := time.NewTicker(p.cfg.Poll)
	defer poll.Stop()
	for trouble := (trouble{log: p.cfg.Log}); ctx.Err() == nil; {
		slots := 0
		for slots < p.cfg.Workers && len(free) > 0 {
			<-free
			slots++
		}
		var events []Event
		var err error
		if slots > 0 {
			events, err = p.leaseDue(ctx, slots)
		}
		for range slots - len(events) {
			free <- struct{}{}
		}
		for _, e := range events {
			trying.Go(func() { // Run waits for it
				defer p.wake()
				defer func() { free <- struct{}{} }()
				p.retry(work, e)
			})
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && final(err):
			return err
		case err != nil:
			_ = trouble.wait(ctx, err) // the loop sees that ctx is done
			continue
		}
		trouble.over(ctx)
		select {
		case <-p.kick:
		case <-poll.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// retry makes one attempt at e, which is leased, and says in inbox_events what came of it. What it
// cannot say there is seen when the lease is over.
func (p *Processor) retry(ctx context.Context, e Event) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.note(e.ID, cancel)
	defer p.note(e.ID, nil)

	began := time.Now()
	result, err := p.leased(ctx, e)
	failed, isAttempt := errors.AsType[*attemptError](err)
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrLeaseLost):
	case isAttempt:
		p.stats.failed(&e, began)
		delay, park := p.next(e.Attempt, failed.err)
		if err = p.postpone(ctx, &e, failed.err, delay, park); err == nil && park {
			p.noteParking(ctx, &e, failed.err)
		}
	case err != nil:
	case result == handled:
		p.stats.handled(&e, began)
	default:
		p.stats.count(e.Type, func(s *TypeStat) { s.Duplicates++ })
	}
	if err != nil && !errors.Is(err, failed) {
		p.cfg.Log.WarnContext(ctx, "attempt without outcome", slog.String("id", e.ID.String()), slog.Any("err", err))
	}
}

// leased handles e, takes it out of inbox_events and lets the next one of its lane follow, in one
// transaction.
func (p *Processor) leased(ctx context.Context, e Event) (result, error) {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return 0, err
	}
	defer rollback(ctx, tx)
	fresh, err := p.claim(ctx, tx, p.sql.claimLeased, p.cfg.Consumer, pgUUID(e.ID), pgUUID(p.owner))
	if err != nil {
		return 0, err
	}
	leave := func() error { return p.leaveLane(ctx, tx, &e) }
	if fresh {
		return handled, p.attempt(ctx, tx, e, leave)
	}
	if err := leave(); err != nil { // ErrLeaseLost, if that is why it was not claimed
		return 0, err
	}
	return duplicate, explain("commit", tx.Commit(ctx))
}

// leaveLane takes e out of its lane, if the lease is still ours.
func (p *Processor) leaveLane(ctx context.Context, tx pgx.Tx, e *Event) error {
	lane := e.lane()
	var batch pgx.Batch
	batch.Queue(lockLane, laneLock(lane))
	batch.Queue(p.sql.remove, p.cfg.Consumer, pgUUID(e.ID), pgUUID(p.owner))
	batch.Queue(p.sql.promote, p.cfg.Consumer, pgUUID(lane))
	results := tx.SendBatch(ctx, &batch)
	_, err := results.Exec()
	removed := int64(0)
	if err == nil {
		tag, removeErr := results.Exec()
		removed, err = tag.RowsAffected(), removeErr
	}
	err = finish(results, err)
	switch {
	case err != nil && sqlState(err) == "25P02":
		return &attemptError{errors.New("the handler has returned nil although a statement of its transaction failed")}
	case err != nil:
		return explain("take an event out", err)
	case removed == 0:
		return ErrLeaseLost
	}
	return nil
}

// postpone writes down that the attempt at e has failed.
func (p *Processor) postpone(ctx context.Context, e *Event, cause error, delay time.Duration, park bool) error {
	tag, err := p.exec(ctx, p.sql.again,
		p.cfg.Consumer, pgUUID(e.ID), pgUUID(p.owner), describe(cause), delay.Microseconds(), park)
	if err == nil && tag == 0 {
		err = ErrLeaseLost
	}
	return err
}

// exec runs one statement in a transaction of its own.
func (p *Processor) exec(ctx context.Context, sql string, args ...any) (rows int64, err error) {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return 0, err
	}
	defer rollback(ctx, tx)
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return 0, explain("write down an outcome", err)
	}
	return tag.RowsAffected(), explain("commit", tx.Commit(ctx))
}

// note notes an attempt that begins, or with nil, that it has ended.
func (p *Processor) note(id uuid.UUID, cancel context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel == nil {
		delete(p.attempts, id)
		return
	}
	p.attempts[id] = cancel
}

// underWay returns the attempts that have begun and not ended.
func (p *Processor) underWay() []uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(p.attempts))
	for id := range p.attempts {
		ids = append(ids, id)
	}
	return ids
}

// renew renews the leases, and ends the attempts whose lease is another's.
func (p *Processor) renew(ctx context.Context) error {
	before := p.underWay()
	if len(before) == 0 {
		return nil
	}
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	rows, err := tx.Query(ctx, p.sql.renew, p.cfg.Consumer, pgUUID(p.owner), p.cfg.Lease.Microseconds())
	if err != nil {
		return explain("renew leases", err)
	}
	ours, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if err != nil {
		return explain("renew leases", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return explain("renew leases", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range before {
		// One that has ended in the meantime is no longer there, and one that began is not in before.
		if cancel := p.attempts[id]; cancel != nil && !slices.Contains(ours, pgUUID(id)) {
			cancel(ErrLeaseLost)
		}
	}
	return nil
}

// giveBack ends the leases that are left, so that others need not wait for their end.
func (p *Processor) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if _, err := p.exec(ctx, p.sql.release, p.cfg.Consumer, pgUUID(p.owner)); err != nil {
		p.cfg.Log.WarnContext(ctx, "leases not given back", slog.Any("err", err))
	}
}

const giveBackTimeout = 2 * time.Second

// repeat calls do at once and then every interval, until ctx is done. What may pass is left to the
// next time.
func (p *Processor) repeat(ctx context.Context, interval time.Duration, do func(context.Context) error) error {
	ticker := time.NewTicker(max(interval, time.Millisecond))
	defer ticker.Stop()
	for {
		if err := do(ctx); err != nil && final(err) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
