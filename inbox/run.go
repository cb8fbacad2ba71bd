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

// Run retries the due events of inbox_events, including those of crashed processors, until ctx is
// done. Then running attempts have Grace to finish, Run releases its leases and returns nil. Events
// are retried only while at least one processor of the consumer is in Run. Run it in every instance.
// A Processor can be in Run once: a second call returns an error.
//
// While the database is unavailable, Run keeps retrying. It returns errors that a retry cannot fix:
// [ErrNoTable], [ErrOldTable] or missing rights.
func (p *Processor) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("inbox: Run is already running for this processor")
	}
	defer p.running.Store(false)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work, done := p.withGrace(ctx)
	defer done()

	var background, attempts sync.WaitGroup
	backgroundCtx, stopBackground := context.WithCancel(work)
	background.Go(func() { fail(repeat(backgroundCtx, p.cfg.LeaseDuration/3, p.renewLeases)) })
	background.Go(func() { fail(repeat(backgroundCtx, backlogInterval, p.countBacklog)) })
	err := p.retryDue(ctx, work, &attempts)
	attempts.Wait() // while the leases are still renewed
	stopBackground()
	background.Wait()
	p.releaseLeases(work)
	if err == nil && final(context.Cause(ctx)) {
		err = context.Cause(ctx)
	}
	return err
}

// backlogInterval is how often the waiting events are counted.
const backlogInterval = 5 * time.Second

// retryDue starts an attempt for each due event, Config.Workers at a time, until ctx is done.
func (p *Processor) retryDue(ctx, work context.Context, attempts *sync.WaitGroup) error {
	free := make(chan struct{}, p.cfg.Workers)
	for range p.cfg.Workers {
		free <- struct{}{}
	}
	poll := time.NewTicker(p.cfg.PollInterval)
	defer poll.Stop()
	for outage := (outage{log: p.cfg.Logger}); ctx.Err() == nil; {
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
			attempts.Go(func() { // Run waits for it
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
			_ = outage.backOff(ctx, err) // the loop checks ctx
			continue
		}
		outage.end(ctx)
		select {
		case <-p.kick:
		case <-poll.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// retry makes one attempt at e, which is leased, and records the result in inbox_events. If it cannot
// record it, the event is retried when the lease expires.
func (p *Processor) retry(ctx context.Context, e Event) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.setAttempt(e.ID, cancel)
	defer p.setAttempt(e.ID, nil)

	began := time.Now()
	result, err := p.handleLeased(ctx, e)
	failed, isAttempt := errors.AsType[*attemptError](err)
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrLeaseLost):
	case isAttempt:
		p.stats.failed(&e, began)
		f := p.failure(e, failed.err)
		if err = p.storeFailure(ctx, f); err == nil {
			p.report(ctx, f)
			p.wakeIn(f.RetryIn)
		}
	case err != nil:
	case result == handled:
		p.stats.handled(&e, began)
		if e.Attempt > 1 {
			p.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "inbox: event handled after failed attempts", p.describeEvent(&e)...)
		}
	default:
		p.stats.count(e.Type, func(s *TypeStat) { s.Duplicates++ })
	}
	if err != nil && !errors.Is(err, failed) {
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "inbox: attempt without result, the event is retried when its lease expires",
			append(p.describeEvent(&e), slog.Any("err", err))...)
	}
}

// handleLeased handles e, removes it from inbox_events and makes the next event of its lane due, in
// one transaction.
func (p *Processor) handleLeased(ctx context.Context, e Event) (result, error) {
	tx, err := p.beginTx(ctx)
	if err != nil {
		return 0, err
	}
	defer rollback(ctx, tx)
	fresh, err := p.claim(ctx, tx, p.sql.claimLeased, p.cfg.Consumer, pgUUID(e.ID), pgUUID(p.owner))
	if err != nil {
		return 0, err
	}
	remove := func() error { return p.removeLeased(ctx, tx, &e) }
	if fresh {
		return handled, p.attempt(ctx, tx, e, remove)
	}
	if err := remove(); err != nil { // ErrLeaseLost, if that is why there was no claim
		return 0, err
	}
	return duplicate, explain("commit", tx.Commit(ctx))
}

// removeLeased removes e from its lane. It returns ErrLeaseLost if the lease is not ours any more.
func (p *Processor) removeLeased(ctx context.Context, tx pgx.Tx, e *Event) error {
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
	err = closeResults(results, err)
	switch {
	case err != nil && sqlState(err) == "25P02":
		return &attemptError{errSwallowed}
	case err != nil:
		return explain("remove an event", err)
	case removed == 0:
		return ErrLeaseLost
	}
	return nil
}

// storeFailure records a failed attempt at a leased event.
func (p *Processor) storeFailure(ctx context.Context, f Failure) error {
	rows, err := p.exec(ctx, p.sql.recordFailure,
		p.cfg.Consumer, pgUUID(f.Event.ID), pgUUID(p.owner), describe(f.Err), f.RetryIn.Microseconds(), f.Parked)
	if err == nil && rows == 0 {
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
		return 0, explain("update an event", err)
	}
	return tag.RowsAffected(), explain("commit", tx.Commit(ctx))
}

// setAttempt registers a running attempt, or with nil removes it.
func (p *Processor) setAttempt(id uuid.UUID, cancel context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel == nil {
		delete(p.attempts, id)
		return
	}
	p.attempts[id] = cancel
}

func (p *Processor) runningAttempts() []uuid.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(p.attempts))
	for id := range p.attempts {
		ids = append(ids, id)
	}
	return ids
}

// renewLeases renews the leases, and cancels the attempts whose lease another processor has.
func (p *Processor) renewLeases(ctx context.Context) error {
	before := p.runningAttempts()
	if len(before) == 0 {
		return nil
	}
	tx, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	rows, err := tx.Query(ctx, p.sql.renew, p.cfg.Consumer, pgUUID(p.owner), p.cfg.LeaseDuration.Microseconds())
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
		// An attempt that has ended since is not in attempts, and one that has started is not in before.
		if cancel := p.attempts[id]; cancel != nil && !slices.Contains(ours, pgUUID(id)) {
			cancel(ErrLeaseLost)
		}
	}
	return nil
}

// releaseLeases releases the remaining leases, so that other processors need not wait until they
// expire.
func (p *Processor) releaseLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if _, err := p.exec(ctx, p.sql.release, p.cfg.Consumer, pgUUID(p.owner)); err != nil {
		p.cfg.Logger.WarnContext(ctx, "inbox: leases not released, they expire by themselves", slog.Any("err", err))
	}
}

const releaseTimeout = 2 * time.Second

// repeat calls do now and then every interval, until ctx is done or do fails with a final error.
func repeat(ctx context.Context, interval time.Duration, do func(context.Context) error) error {
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
