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

// settle is how long Idle waits after the first record until the contender is idle.
const settle = 2 * time.Second

// Idle lets c stream for d without rows.
func (w *Workbench) Idle(ctx context.Context, c Contender, d time.Duration) (IdleResult, error) {
	result := IdleResult{Contender: c.Name(), Elapsed: d}
	load := Load{Rows: 1, PayloadBytes: MinPayloadBytes, PerTransaction: 1, Keys: 1}
	_, err := w.stream(ctx, c, load, nil, func(ctx context.Context, p *Process) error {
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
	if err != nil {
		return IdleResult{}, fmt.Errorf("idle %s: %w", c.Name(), err)
	}
	return result, nil
}
