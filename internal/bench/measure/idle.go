package measure

import (
	"context"
	"fmt"
	"time"
)

// StartUp returns the time from the start of c's process until the consumer has the record of a row that was
// waiting in the slot.
func (w *Workbench) StartUp(ctx context.Context, c Contender) (time.Duration, error) {
	b, err := w.Write(ctx, Load{Rows: 1, PayloadBytes: MinPayloadBytes, PerTransaction: 1, Keys: 1})
	if err != nil {
		return 0, err
	}
	result, err := b.Drain(ctx, c)
	if closeErr := b.Close(ctx); err == nil {
		err = closeErr
	}
	if err == nil && !result.Verdict.Good() {
		err = fmt.Errorf("the first record of %s: %+v", c.Name(), *result.Verdict)
	}
	return result.Elapsed, err
}

// settle is how long Idle waits after the last record until the contender is idle.
const settle = 5 * time.Second

// Idle lets c deliver a row of each key, so that it knows the partitions of the keys, and then stream for d without rows.
func (w *Workbench) Idle(ctx context.Context, c Contender, keys int, d time.Duration) (IdleResult, error) {
	result := IdleResult{Contender: c.Name(), Elapsed: d}
	load := Load{Rows: keys, PayloadBytes: MinPayloadBytes, PerTransaction: 10, Keys: keys}
	verdict, err := w.stream(ctx, c, load, nil, func(ctx context.Context, p *Process, o *observer) error {
		if err := w.writeRest(ctx, load); err != nil {
			return err
		}
		if err := w.awaitAll(ctx, c, p, o); err != nil {
			return err
		}
		now := time.Now()
		if err := sleepUntil(ctx, now.Add(settle)); err != nil {
			return err
		}
		before, exactly := p.Usage().CPU, ThreadTime(p.proc.PID())
		if err := sleepUntil(ctx, now.Add(settle+d)); err != nil {
			return err
		}
		after := p.Usage()
		result.CPU, result.RSS = after.CPU-before, after.RSS
		if exactly > 0 { // and not to a tick
			result.CPU = ThreadTime(p.proc.PID()) - exactly
		}
		return nil
	})
	if err == nil && !verdict.Good() {
		err = fmt.Errorf("the records: %+v", verdict)
	}
	if err != nil {
		return IdleResult{}, fmt.Errorf("idle %s: %w", c.Name(), err)
	}
	return result, nil
}

// writeRest writes the rows of l after row 0.
func (w *Workbench) writeRest(ctx context.Context, l Load) error {
	if l.Rows == 1 {
		return nil
	}
	conn, err := w.loader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := w.loadStep(ctx, conn, l, 1, l.Rows); err != nil {
		return postgresError("write the rows", err)
	}
	return nil
}
