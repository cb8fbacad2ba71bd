package broker

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// An outcome keeps the first error of a Producer. Its methods may be called from any goroutine.
type outcome struct{ first atomic.Pointer[error] }

func (o *outcome) note(err error) {
	if err != nil {
		o.first.CompareAndSwap(nil, &err)
	}
}

func (o *outcome) err() error {
	if p := o.first.Load(); p != nil {
		return *p
	}
	return nil
}

// workers publish messages with a blocking call from several goroutines. A key always has the same one, so its messages stay
// in order.
type workers struct {
	outcome
	queues []chan measure.Message
	done   sync.WaitGroup
	seed   maphash.Seed
}

// newWorkers starts n goroutines, which send up to batch messages at a time. They end with Wait.
func newWorkers(n, batch int, send func([]measure.Message) error) *workers {
	w := &workers{seed: maphash.MakeSeed()}
	for range n {
		queue := make(chan measure.Message, 2*batch)
		w.queues = append(w.queues, queue)
		w.done.Go(func() {
			for m := range queue {
				messages := []measure.Message{m}
				for len(messages) < batch && len(queue) > 0 {
					messages = append(messages, <-queue)
				}
				if w.err() == nil {
					w.note(send(messages))
				}
			}
		})
	}
	return w
}

// Publish implements measure.Producer.
func (w *workers) Publish(ctx context.Context, messages []measure.Message) error {
	for _, m := range messages {
		select {
		case w.queues[maphash.String(w.seed, m.Key)%uint64(len(w.queues))] <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return w.err()
}

// Wait implements measure.Producer. Nothing may be published afterwards.
func (w *workers) Wait(context.Context) error {
	for _, queue := range w.queues {
		close(queue)
	}
	w.done.Wait()
	return w.err()
}
