package replication

import (
	"context"
	"time"
)

// waitFor is what wait waits for: that batch is sent to out, that a batch is free, or that the
// token for a large message is free. The other channels are nil.
type waitFor struct {
	out   chan<- *Batch
	batch *Batch
	free  <-chan *Batch
	large <-chan struct{}
}

// wait implements back-pressure: it blocks without reading, and sends status updates. It returns
// the free batch if that is what it waited for.
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
		r.lastReceived = time.Now() // data may have arrived since, unread
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
