package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const (
	// firstTimeout limits the time from the start of a contender to its first record.
	firstTimeout = 90 * time.Second

	stopTimeout      = 30 * time.Second
	slotFreeTimeout  = 10 * time.Second
	progressInterval = 200 * time.Millisecond
	slotInterval     = 3 * time.Millisecond
)

// Drain lets c drain a copy of b's slot. It blocks until the consumer has every row, or until no record has
// arrived for a while; the verdict then counts the other rows as lost. An error means that the contender or a
// server has failed.
func (b *Backlog) Drain(ctx context.Context, c Contender) (DrainResult, error) {
	result, err := b.drain(ctx, c)
	if err != nil {
		return DrainResult{}, fmt.Errorf("drain with %s: %w", c.Name(), err)
	}
	return result, nil
}

func (b *Backlog) drain(ctx context.Context, c Contender) (result DrainResult, err error) {
	w := b.bench
	slot, err := w.copySlot(ctx, b)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, w.dropSlot(ctx, slot)) }()
	if !c.Produces() {
		return b.read(ctx, c, slot)
	}
	rows := w.plan(b.Load)
	o, err := w.observe(ctx, rows, nil)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, o.close(ctx)) }()
	runtime.GC() // so that our garbage collection does not run during the measurement
	own := ownCPU()
	p, err := w.start(ctx, c, w.target(slot, b.end, rows, o.stream))
	if err != nil {
		return result, err
	}
	if p.reads != nil {
		err = p.give(0, rows.rows)
	}
	reads, awaiting := w.awaitReader(ctx, p, slot, o.first)
	err = errors.Join(err, awaiting)
	atFirst := p.Usage()
	if err == nil {
		err = awaitFirst(ctx, p, o)
	}
	if err == nil {
		err = w.awaitAll(ctx, c, p, o)
	}
	atLast := p.Usage()
	own = ownCPU() - own
	if stopErr := w.stop(ctx, p); err == nil {
		err = stopErr
	}
	if err != nil {
		return result, err
	}
	verdict, err := o.finish(ctx)
	if err != nil {
		return result, err
	}
	used := p.Usage()
	return DrainResult{
		Contender: c.Name(), Rows: b.Load.Rows, Batches: o.batches(),
		Elapsed: o.lastAt.Sub(p.begun), Streaming: o.lastAt.Sub(reads),
		CPU: used.CPU, CPUStreaming: atLast.CPU - atFirst.CPU, PeakRSS: used.PeakRSS, ConsumerCPU: own,
		Verdict: &verdict,
	}, nil
}

// read measures a contender that does not produce records and ends by itself.
func (b *Backlog) read(ctx context.Context, c Contender, slot string) (result DrainResult, err error) {
	b.bench.cfg.Progress(Progress{c.Name(), 0, b.Load.Rows})
	p, err := b.bench.start(ctx, c, b.bench.target(slot, b.end, b.bench.plan(b.Load), nil))
	if err != nil {
		return result, err
	}
	reads, err := b.bench.awaitReader(ctx, p, slot, nil)
	atFirst := p.Usage()
	var ended time.Time
	select {
	case <-p.Done():
		ended = time.Now()
		err = errors.Join(err, p.failure())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err = errors.Join(err, b.bench.stop(ctx, p)); err != nil {
		return result, err
	}
	used := p.Usage()
	return DrainResult{
		Contender: c.Name(), Rows: b.Load.Rows, Elapsed: ended.Sub(p.begun), Streaming: ended.Sub(reads),
		CPU: used.CPU, CPUStreaming: used.CPU - atFirst.CPU, PeakRSS: used.PeakRSS,
	}, nil
}

// target returns the target for a contender that reads slot to end and writes to the destinations of to; nil: to none.
func (w *Workbench) target(slot, end string, rows plan, to Stream) Target {
	t := Target{
		DSN: w.servers.DSN, Publication: w.name, Slot: slot, Schema: w.name, Table: table, End: end,
		TopicPrefix: w.prefix, ClientID: slot, plan: rows,
	}
	if to != nil {
		t.Topics, t.Settings = to.Names(), to.Settings()
	}
	return t
}

// start starts c.
func (w *Workbench) start(ctx context.Context, c Contender, t Target) (p *Process, err error) {
	if t.dir, err = serverproc.MakeDir("", "outbox-cdc-bench-"); err != nil {
		return nil, fmt.Errorf("create a directory for %s: %w", c.Name(), err)
	}
	if p, err = c.Start(ctx, t); err != nil {
		return nil, errors.Join(err, t.dir.Remove())
	}
	return p, nil
}

// stop stops a contender cleanly, even if ctx is done.
func (w *Workbench) stop(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return p.Stop(ctx)
}

// awaitReader waits until the slot is active, and returns since when, by the server's catalog, which treats all
// contenders alike. If the contender ends before that, it returns the start of the process. If the slot was
// never seen active, it returns the time of the first record, when first is closed.
func (w *Workbench) awaitReader(ctx context.Context, p *Process, slot string, first <-chan struct{}) (since time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, firstTimeout, fmt.Errorf("nothing read the slot within %s", firstTimeout))
	defer cancel()
	ticker := time.NewTicker(slotInterval)
	defer ticker.Stop()
	for active := false; !active; {
		select {
		case <-ticker.C:
		case <-p.Done():
			return p.begun, nil
		case <-first:
			return time.Now(), nil
		case <-ctx.Done():
			return p.begun, context.Cause(ctx)
		}
		since = time.Now()
		err := w.pool.QueryRow(ctx, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&active)
		if err != nil {
			return p.begun, postgresError("look at the slot", err)
		}
	}
	return since, nil
}

// awaitFirst waits for the first record.
func awaitFirst(ctx context.Context, p *Process, o *observer) error {
	select {
	case <-o.first:
		return nil
	case <-p.Done():
		return endedEarly(p)
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(firstTimeout):
		return fmt.Errorf("no record within %s; the last output of the process:\n%s", firstTimeout, p.output)
	}
}

// awaitAll waits until o has all rows, or until no row has arrived for a while.
func (w *Workbench) awaitAll(ctx context.Context, c Contender, p *Process, o *observer) error {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	newest, at := int64(0), time.Now()
	for {
		select {
		case <-o.all:
			w.cfg.Progress(Progress{c.Name(), o.rows, o.rows})
			return nil
		case <-p.Done():
			return endedEarly(p)
		case <-o.done:
			return o.err
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-ticker.C:
			received := o.received.Load()
			if received > newest {
				newest, at = received, now
			}
			if now.Sub(at) > w.cfg.Patience {
				return nil
			}
			w.cfg.Progress(Progress{c.Name(), int(received), o.rows})
		}
	}
}

// endedEarly returns the error for a process that has ended while it was needed.
func endedEarly(p *Process) error {
	if err := p.failure(); err != nil {
		return fmt.Errorf("it ended too early: %w", err)
	}
	return errors.New("it ended too early, with status 0")
}
