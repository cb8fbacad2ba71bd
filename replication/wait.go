package replication

import (
	"context"
	"time"
)

// waitFor names one thing to wait for: that out takes batch, that a batch is free, or that
// memory for a large message may be taken.
type waitFor struct {
	out   chan<- *Batch
	batch *Batch
	free  <-chan *Batch
	large <-chan struct{}
}

// wait is the back-pressure: until it returns nothing is read, and what is due is done.
func (r *run) wait(ctx context.Context, w waitFor) (*Batch, error) {
	select {
	case w.out <- w.batch:
		return nil, nil
	case b := <-w.free:
		return b, nil
	case <-w.large:
		return nil, nil
	default:
	}
	r.blocked = true
	defer func() {
		r.blocked = false
		r.lastReceived = time.Now() // what has come meanwhile was not looked for
	}()
	for {
		r.timer.Reset(time.Until(r.due()))
		select {
		case w.out <- w.batch:
			return nil, nil
		case b := <-w.free:
			return b, nil
		case <-w.large:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-r.timer.C:
			if err := r.tick(ctx, time.Now()); err != nil {
				return nil, err
			}
		}
	}
}
