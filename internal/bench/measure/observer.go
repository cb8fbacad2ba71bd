package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// An observer consumes all records that are written to the destinations from now on, and passes them to a checker. It shares
// the machine with the contenders, so a Stream should be cheap.
type observer struct {
	stream Stream
	onRow  func(row int, at time.Time) // called for the first record of a row; may be nil

	received atomic.Int64  // rows
	first    chan struct{} // closed with the first record
	all      chan struct{} // closed with the last row
	lastAt   time.Time     // when the last row arrived; valid after done is closed

	stop context.CancelFunc
	done chan struct{} // closed when run has returned; other goroutines use the fields below after that
	err  error
	*checker

	closing sync.Once
	closed  error
}

// observe starts an observer. Everything that is written after its return is consumed.
func (w *Workbench) observe(ctx context.Context, p plan, onRow func(row int, at time.Time)) (*observer, error) {
	stream, err := w.topics.Observe(ctx)
	if err != nil {
		return nil, err
	}
	consuming, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &observer{
		stream: stream, onRow: onRow, checker: newChecker(p, stream.Names()), stop: stop,
		first: make(chan struct{}), all: make(chan struct{}), done: make(chan struct{}),
	}
	go func() { // close waits for it
		defer close(o.done)
		o.err = o.run(consuming)
	}()
	return o, nil
}

// run consumes until ctx is done.
func (o *observer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := o.stream.Poll(ctx, o.enter); err != nil {
			return err
		}
	}
	return nil
}

func (o *observer) enter(at time.Time, where delivery.Coordinates, key, value []byte) {
	select {
	case <-o.first:
	default:
		close(o.first)
	}
	row := o.take(where, key, value)
	if row < 0 {
		return
	}
	if o.onRow != nil {
		o.onRow(row, at)
	}
	o.lastAt = at
	if o.received.Add(1) == int64(o.rows) {
		close(o.all)
	}
}

// batches returns the number of batches that the contender has written, or 0 if the broker has no batches. All records must have
// been consumed.
func (o *observer) batches() int {
	if s, ok := o.stream.(BatchCounter); ok {
		return s.Batches()
	}
	return 0
}

// catchUpTimeout limits reading the last records of a contender.
const catchUpTimeout = 30 * time.Second

// finish reads to the ends of the destinations, stops the observer and returns the verdict. The contender must have
// ended.
func (o *observer) finish(ctx context.Context) (Verdict, error) {
	limited, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	o.stop()
	<-o.done
	if o.err == nil {
		o.err = o.readToEnd(limited)
	}
	return o.verdict(), errors.Join(o.err, o.close(ctx))
}

func (o *observer) readToEnd(ctx context.Context) error {
	reached, err := o.stream.End(ctx)
	if err != nil {
		return err
	}
	for !reached() {
		if err := o.stream.Poll(ctx, o.enter); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("consume to the ends of the destinations: %w", context.Cause(ctx))
		}
	}
	return nil
}

// close stops the observer, even if ctx is done. It may be called twice.
func (o *observer) close(ctx context.Context) error {
	o.closing.Do(func() {
		o.stop()
		<-o.done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		o.closed = o.stream.Close(ctx)
	})
	return o.closed
}
