package lane

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// publishRequests and publishBytes limit a call of Publish, because the fence is asked before each.
	publishRequests = 256
	publishBytes    = 1 << 20
)

// errFinished is the cause with which Run ends after all records have an outcome.
var errFinished = errors.New("every record has an outcome")

// Run implements [sink.Writer]. One goroutine publishes and applies outcomes, another one logs.
func (w *Writer) Run(ctx context.Context, done func(seqs []uint64, err error)) error {
	monitored, stop := context.WithCancel(context.WithoutCancel(ctx))
	var monitor sync.WaitGroup
	monitor.Go(func() { w.monitor(monitored) })
	cause := w.publish(ctx, done)
	if err := w.transport.Close(); err != nil {
		w.log.WarnContext(ctx, "connection to the broker not closed", slog.Any("err", err))
	}
	stop()
	monitor.Wait()
	return w.finish(cause)
}

// publish is the loop of Run. It returns why it has ended: errFinished, the error of the fence, or the cause of ctx.
func (w *Writer) publish(ctx context.Context, done func(seqs []uint64, err error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var seqs []uint64
	var requests []*Request
	over := ctx.Done()
	for {
		seqs = w.applyOutcomes(seqs, done)
		var wait time.Duration
		requests, wait = w.nextRequests(ctx, requests[:0])
		w.reportRejected(done)
		if len(requests) > 0 {
			w.transport.Publish(ctx, requests)
			clear(requests)
			continue
		}
		if cause := w.endCause(ctx); cause != nil {
			return cause
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-w.wake:
		case <-due:
		case <-over:
			over = nil
		}
	}
}

// endCause returns why Run ends now, or nil.
func (w *Writer) endCause(ctx context.Context) error {
	w.mu.Lock()
	outstanding, halted, left, closed, failed := w.outstanding, w.halted, w.inFlightRecords, w.sendClosed, w.failure != nil
	w.mu.Unlock()
	switch {
	case outstanding > 0:
		return nil
	case halted, left == 0 && (closed || failed):
		return errFinished
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case closed:
		return w.checkFence()
	}
	return nil
}

// finish releases all memory and returns the result of Run. cause is why it has ended.
func (w *Writer) finish(cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(w.ended)
	undelivered := &sink.UndeliveredError{Records: w.inFlightRecords, Cause: cause}
	for _, d := range w.destinations {
		for l := d.lanes; l != nil; l = l.next {
			for e := l.head; e != nil && e.sent; e = e.next {
				undelivered.Sent++
			}
		}
	}
	clear(w.destinations)
	clear(w.failing)
	w.table, w.ready, w.delayed, w.freeLanes, w.pool = newLaneTable(), laneQueue{}, laneHeap{}, nil, entryPool{}
	w.inFlightRecords, w.inFlightBytes, w.memory, w.missingRecords, w.missingMemory = 0, 0, 0, 0, 0
	w.connection = retryState{}
	switch {
	case w.failure != nil:
		return w.failure
	case errors.Is(cause, errFinished), w.sendClosed && undelivered.Records == 0:
		return nil
	case undelivered.Records == 0:
		return cause
	default:
		return undelivered
	}
}

// checkFence returns nil while the fence is open, otherwise its error.
func (w *Writer) checkFence() error {
	if w.cfg.Fence == nil {
		return nil
	}
	return w.cfg.Fence()
}

// nextRequests appends to requests those that can be published now. If there are none, it returns how long to wait for
// the next one; 0 means until Run is woken up.
func (w *Writer) nextRequests(ctx context.Context, requests []*Request) ([]*Request, time.Duration) {
	now := time.Now()
	w.mu.Lock()
	w.gatheredRecords, w.gatheredBytes = 0, 0
	can, wait := w.canSend(ctx, now)
	w.mu.Unlock()
	if !can {
		return requests, wait
	}
	if w.checkFence() != nil {
		return requests, 0
	}
	w.mu.Lock()
	requests = w.fill(requests, now)
	if len(requests) == 0 {
		_, wait = w.canSend(ctx, now)
	}
	w.mu.Unlock()
	return requests, wait
}

// canSend reports whether a lane may send now. Otherwise it returns how long to wait for one. w.mu is held.
func (w *Writer) canSend(ctx context.Context, now time.Time) (can bool, wait time.Duration) {
	if w.halted || ctx.Err() != nil {
		return false, 0
	}
	for l := w.delayed.first(); l != nil && !l.retryAt.After(now); l = w.delayed.first() {
		w.delayed.remove(l)
		w.makeReady(l)
	}
	switch {
	case w.connection.attempts > 0 && w.outstanding > 0:
		return false, 0
	case w.connection.attempts > 0 && w.connection.retryAt.After(now):
		return false, w.connection.retryAt.Sub(now)
	case w.options.Outstanding > 0 && w.outstanding >= w.options.Outstanding:
		return false, 0
	case w.ready.head != nil:
		return true, 0
	}
	if l := w.delayed.first(); l != nil {
		return false, l.retryAt.Sub(now)
	}
	return false, 0
}

// fill appends requests of the lanes that are ready. w.mu is held.
func (w *Writer) fill(requests []*Request, now time.Time) []*Request {
	limit := publishRequests
	if w.options.Outstanding > 0 {
		limit = min(limit, w.options.Outstanding-w.outstanding)
	}
	if w.connection.attempts > 0 {
		limit = min(limit, 1-w.outstanding)
	}
	for size := 0; w.ready.head != nil && len(requests) < limit && size < publishBytes && !w.halted; {
		l := w.ready.pop()
		l.state = busy
		switch {
		case l.head == nil:
			w.recycle(l)
			continue
		case l.destination.prober != nil && l.destination.prober != l:
			w.park(l)
			continue
		}
		if w.prepare(l); l.head == nil {
			w.release(l)
			continue
		}
		f := w.newFlight(l, now)
		size += f.payload
		requests = append(requests, &f.Request)
	}
	return requests
}
