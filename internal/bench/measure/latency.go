package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Flow is a steady stream of transactions of one row each.
type Flow struct {
	Rate         int           // per second
	Duration     time.Duration // of the measurement
	WarmUp       time.Duration // before the measurement; 0: one second
	PayloadBytes int
	Keys         int // about how many; 0: 1000
}

func (f Flow) validate() error {
	if f.Rate < 1 || f.Rate > maxRate || f.Duration < time.Second || f.WarmUp < 0 {
		return fmt.Errorf("the rate must be from 1 to %d per second, and the duration at least 1s", maxRate)
	}
	return nil
}

// Latency lets c stream while rows are written at a fixed rate, and measures the time until each row reaches the
// consumer. It blocks for the warm-up and the duration of f, and until the missing records have arrived.
func (w *Workbench) Latency(ctx context.Context, c Contender, f Flow) (LatencyResult, error) {
	if err := f.validate(); err != nil {
		return LatencyResult{}, err
	}
	result, err := w.latency(ctx, c, newSchedule(f))
	if err != nil {
		return LatencyResult{}, fmt.Errorf("latency of %s at %d/s: %w", c.Name(), f.Rate, err)
	}
	return result, nil
}

func (w *Workbench) latency(ctx context.Context, c Contender, s *schedule) (LatencyResult, error) {
	load := Load{Rows: s.rows(), PayloadBytes: s.PayloadBytes, PerTransaction: 1, Keys: s.Keys}
	conns, err := w.connections(ctx, s.writers)
	if err != nil {
		return LatencyResult{}, err
	}
	defer release(conns)
	var before, used Usage
	verdict, err := w.stream(ctx, c, load, s.receive, func(ctx context.Context, p *Process, _ *observer) error {
		before = p.Usage()
		defer func() { used = p.Usage() }()
		write := w.writer(load, p)
		return s.run(ctx,
			func(ctx context.Context, writer, row int) error { return write(ctx, conns[writer], row) },
			func(sent int) { w.cfg.Progress(Progress{c.Name(), sent, s.rows()}) })
	})
	if err != nil {
		return LatencyResult{}, err
	}
	result := s.result()
	result.Contender, result.Verdict = c.Name(), verdict
	result.CPU, result.PeakRSS = used.CPU-before.CPU, used.PeakRSS
	return result, nil
}

// connections returns n open connections of the pool.
func (w *Workbench) connections(ctx context.Context, n int) ([]*pgxpool.Conn, error) {
	conns := make([]*pgxpool.Conn, 0, n)
	for range n {
		conn, err := w.pool.Acquire(ctx)
		if err != nil {
			release(conns)
			return nil, postgresError(fmt.Sprintf("open %d connections", n), err)
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func release(conns []*pgxpool.Conn) {
	for _, conn := range conns {
		conn.Release()
	}
}

// writer returns a function that writes a row of l in its own transaction, or gives it to p if p gets its rows from us.
func (w *Workbench) writer(l Load, p *Process) func(ctx context.Context, q querier, row int) error {
	if p.reads != nil {
		return func(_ context.Context, _ querier, row int) error { return p.give(row, row+1) }
	}
	plan := w.plan(l)
	insert := fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload)
		VALUES ($1, $2, $3, 'OrderPlaced', $4)`, w.table())
	return func(ctx context.Context, q querier, row int) error {
		key := plan.key(row)
		payload := plan.appendPayload(nil, row)
		id := fmt.Sprintf("00000000-0000-7000-9000-%012x", row)
		if _, err := q.Exec(ctx, insert, id, AggregateType(key%plan.topics), aggregateID(key), payload); err != nil {
			return postgresError("write a row", err)
		}
		return nil
	}
}

// stream lets c stream from a new slot. It writes row 0 of l and waits for its record, to be sure that c
// streams. Then it calls body, which writes the other rows. It returns the verdict.
func (w *Workbench) stream(
	ctx context.Context, c Contender, l Load, onRow func(row int, at time.Time), body func(context.Context, *Process, *observer) error,
) (v Verdict, err error) {
	if !c.Produces() {
		return v, errors.New("it does not produce records")
	}
	if err := l.Validate(); err != nil {
		return v, err
	}
	slot, err := w.withSlot(func(name string) error {
		_, err := createSlot(ctx, w.pool, name, false)
		return err
	})
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, w.dropSlot(ctx, slot), w.removeRows(ctx)) }()
	rows := w.plan(l)
	o, err := w.observe(ctx, rows, onRow)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	p, err := w.start(ctx, c, w.target(slot, "", rows, o.stream))
	if err != nil {
		return v, err
	}
	err = w.writer(l, p)(ctx, w.pool, 0)
	if err == nil {
		err = awaitFirst(ctx, p, o)
	}
	if err == nil {
		err = whileRunning(ctx, p, o, body)
	}
	if err == nil {
		err = w.awaitAll(ctx, c, p, o)
	}
	if stopErr := w.stop(ctx, p); err == nil {
		err = stopErr
	}
	if err != nil {
		return v, err
	}
	return o.finish(ctx)
}

// whileRunning runs body, whose context ends when p or o does.
func whileRunning(ctx context.Context, p *Process, o *observer, body func(context.Context, *Process, *observer) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() { // waited for below
		defer close(watched)
		select {
		case <-p.Done():
			cancel(endedEarly(p))
		case <-o.done:
			cancel(o.err)
		case <-over:
		}
	}()
	err := body(ctx, p, o)
	close(over)
	<-watched
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	return err
}
