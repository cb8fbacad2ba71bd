package measure

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Outage is a time without the broker, while rows are written.
type Outage struct {
	Load     Load          // its rows are written evenly over Duration
	Duration time.Duration // at least; writing may take longer

	// Begin makes the broker unreachable for the contender, and End reachable again.
	Begin, End func(context.Context) error
}

// An OutageResult has the memory of a contender around an outage.
type OutageResult struct {
	Contender string
	Rows      int           // that were written during the outage
	Down      time.Duration // from Begin to End
	CatchUp   time.Duration // from the end of the outage until the consumer had all rows
	CPU       time.Duration // of the contender during Down

	// RSS in bytes: after the first record, the maximum during Down, at the end of Down, and with all rows delivered; PeakRSS
	// is the maximum of the whole run. 0: unknown.
	Before, During, After, Delivered, PeakRSS int64

	Verdict Verdict
}

const (
	// steadyTime is how long a contender runs before an outage, so that what it starts late is in Before.
	steadyTime = 2 * time.Second

	outageStep = 200 * time.Millisecond
)

// Outage lets c stream, takes the broker away, writes rows, and gives the broker back. It returns when the consumer has all rows.
func (w *Workbench) Outage(ctx context.Context, c Contender, o Outage) (OutageResult, error) {
	result := OutageResult{Contender: c.Name(), Rows: o.Load.Rows - 1}
	verdict, err := w.stream(ctx, c, o.Load, nil, func(ctx context.Context, p *Process, consumer *observer) error {
		if err := sleepUntil(ctx, time.Now().Add(steadyTime)); err != nil {
			return err
		}
		if err := w.takeAway(ctx, c, o, p, &result); err != nil {
			return err
		}
		ended := time.Now()
		err := w.awaitAll(ctx, c, p, consumer)
		used := p.Usage()
		result.CatchUp, result.Delivered, result.PeakRSS = time.Since(ended), used.RSS, used.PeakRSS
		return err
	})
	if err != nil {
		return OutageResult{}, fmt.Errorf("outage with %s: %w", c.Name(), err)
	}
	result.Verdict = verdict
	return result, nil
}

// takeAway takes the broker away while the rows are written, and gives it back even if ctx is done.
func (w *Workbench) takeAway(ctx context.Context, c Contender, o Outage, p *Process, result *OutageResult) (err error) {
	before, begun := p.Usage(), time.Now()
	result.Before = before.RSS
	if err := o.Begin(ctx); err != nil {
		return fmt.Errorf("take the broker away: %w", err)
	}
	defer func() {
		if ending := o.End(context.WithoutCancel(ctx)); ending != nil {
			err = errors.Join(err, fmt.Errorf("give the broker back: %w", ending))
		}
	}()
	if err := w.writeEvenly(ctx, o, func(rows int) {
		result.During = max(result.During, p.Usage().RSS)
		w.cfg.Progress(Progress{c.Name() + " without its broker", rows, o.Load.Rows})
	}); err != nil {
		return err
	}
	after := p.Usage()
	result.Down, result.After, result.CPU = time.Since(begun), after.RSS, after.CPU-before.CPU
	return nil
}

// writeEvenly writes the rows from 1 on, and calls look after each step.
func (w *Workbench) writeEvenly(ctx context.Context, o Outage, look func(rows int)) error {
	conn, err := w.loader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	begun, steps := time.Now(), max(1, int(o.Duration/outageStep))
	for step, first := 1, 1; step <= steps; step++ {
		if last := 1 + (o.Load.Rows-1)*step/steps; last > first {
			if err := w.loadStep(ctx, conn, o.Load, first, last); err != nil {
				return postgresError("write the rows", err)
			}
			first = last
		}
		look(first)
		if err := sleepUntil(ctx, begun.Add(o.Duration*time.Duration(step)/time.Duration(steps))); err != nil {
			return err
		}
	}
	return nil
}
