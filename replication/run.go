package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
)

// Run reads until ctx is done, and then returns its cause, or until the stream ends. It
// hands on a batch as soon as nothing more has arrived; while very many messages arrive it
// lets them gather for a millisecond. While out takes no batch, or all batches are out,
// nothing is read, and neither is after a *RowError. It calls confirmed, which must not block, at least once per
// StatusInterval and reports what that returns, as far as this session has read; at first
// more often, so that a program that is killed again and again before its first interval is
// over gets on all the same. A position that goes back ends Run. It never closes out.
//
// Run is called once, after Start, and is the only goroutine on the connection.
func (s *Stream) Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *Batch) error {
	now := time.Now()
	r := &run{
		Stream: s, confirmed: confirmed, out: out,
		longest:      min(s.cfg.StatusInterval, s.contact.limit/3), // leaves the server time to reply
		lastReceived: now,
		pacer:        pacer{since: now},
		timer:        time.NewTimer(0),
	}
	r.interval = firstInterval / 2
	release := interruptible(ctx, s.wire.conn.SetReadDeadline)
	err := r.loop(ctx)
	release()
	s.socket.wakeAt(wakeAtOnce)
	r.timer.Stop()
	// What is not cut yet leaves the batches: they may be in other hands.
	s.wire.use(make([]byte, max(smallBuffer, s.wire.w-s.wire.r)))
	return err
}

// A run is the state of Stream.Run.
type run struct {
	*Stream
	confirmed func() pglogrepl.LSN
	out       chan<- *Batch
	interval  time.Duration // between status updates
	longest   time.Duration // of it
	commitLSN pglogrepl.LSN // of the transaction being read; 0: none
	noticed   string        // code of the last notice that was logged
	noticedAt time.Time     // when
	batch     *Batch        // being filled; its memory is the wire's

	lastReceived time.Time // when something last arrived; not before reading was resumed
	blocked      bool      // nothing is read at the moment
	inside       bool      // a transaction
	asked        bool      // the server wants a status update
	requests     int       // for one, in a row
	requested    time.Time // when the last request came
	deadline     time.Time // the connection's read deadline
	pacer        pacer
	timer        *time.Timer // for the time while nothing is read
}

// firstInterval is the first one between two status updates. Each is twice as long as the one
// before it, up to the longest.
const firstInterval = 2 * minStatusGap

func (r *run) loop(ctx context.Context) error {
	if err := r.nextBatch(ctx); err != nil {
		return err
	}
	for {
		more, ended := r.cut()
		large, isLarge := errors.AsType[*largeError](ended)
		if ended != nil && !isLarge {
			return r.finish(ctx, ended)
		}
		n := len(r.batch.Messages)
		if n > 0 {
			if err := r.handOver(ctx); err != nil {
				return err
			}
		}
		if isLarge {
			if err := r.makeRoom(ctx, large.size); err != nil {
				return err
			}
		}
		now := time.Now()
		r.pacer.add(n, now)
		if err := r.tick(ctx, now); err != nil {
			return err
		}
		if more {
			continue
		}
		if err := r.receive(ctx, now); err != nil {
			return err
		}
	}
}

// handOver passes the batch on and begins another.
func (r *run) handOver(ctx context.Context) error {
	if _, err := r.wait(ctx, waitFor{out: r.out, batch: r.batch}); err != nil {
		return err
	}
	return r.nextBatch(ctx)
}

// nextBatch takes a batch from the pool. What is received but not cut moves into it.
func (r *run) nextBatch(ctx context.Context) error {
	b, err := r.wait(ctx, waitFor{free: r.pool.free})
	if err != nil {
		return err
	}
	b.reset()
	r.batch = b
	r.wire.use(b.arena)
	return nil
}

// makeRoom gives the batch, which must be empty, memory for a message of size bytes that
// comes next, unless nobody wants that.
func (r *run) makeRoom(ctx context.Context, size int) error {
	start, data, change := r.wire.change()
	switch {
	case change && r.filter.discards(data, size-headerSize-walHeaderSize):
		r.requests = 0
		r.wire.skip(size)
		return nil
	case change && size > r.wire.max:
		return r.finish(ctx, r.rowError(fmt.Errorf("%w: the change at %s has %d bytes and exceeds the limit of %d bytes", ErrRow,
			start, size-headerSize-walHeaderSize, r.cfg.MaxMessageBytes)))
	case size > r.wire.max:
		r.broken = true
		return fmt.Errorf("message of %d bytes in the stream", size)
	}
	if _, err := r.wait(ctx, waitFor{large: r.pool.large}); err != nil {
		return err
	}
	r.batch.large = make([]byte, size)
	r.wire.use(r.batch.large)
	return nil
}

// finish hands on what was read before the stream ended, if somebody takes it before the next status
// update would be due, and returns why it did. The server is not told anything any more.
//
// A row that cannot be streamed is handed on too, as what comes last, and the session goes on until ctx
// ends: what precedes the row can still be delivered and confirmed.
func (r *run) finish(ctx context.Context, ended error) error {
	if row, ok := errors.AsType[*RowError](ended); ok {
		r.batch.Messages = append(r.batch.Messages, row)
		if _, err := r.wait(ctx, waitFor{out: r.out, batch: r.batch}); err != nil {
			return err
		}
		r.batch = nil
		_, err := r.wait(ctx, waitFor{})
		return err
	}
	if len(r.batch.Messages) > 0 {
		select {
		case r.out <- r.batch:
			r.batch = nil
		case <-time.After(r.longest):
		case <-ctx.Done():
		}
	}
	return ended
}

// receive blocks until something arrives or there is something else to do.
func (r *run) receive(ctx context.Context, now time.Time) error {
	busy := r.pacer.busy
	worth := r.worthWaking(now)
	r.socket.wakeAt(worth)
	due := r.due()
	if worth == wakeForRow {
		due = earlier(due, r.lastReceived.Add(keepaliveWait))
	}
	if busy {
		if pause := busyPause - now.Sub(r.lastReceived); pause > 0 && !r.wire.filled {
			r.timer.Reset(pause)
			<-r.timer.C
		}
		due = earlier(due, time.Now().Add(busyPause)) // what is less than wakeAt waits for
	}
	arrived, err := r.read(ctx, due)
	if busy && !arrived && err == nil {
		// It may just be less than wakeForMany, which a read finds as long as it may last.
		arrived, err = r.read(ctx, time.Now().Add(busyPause))
		r.pacer.busy = arrived
	}
	if arrived {
		r.socket.onlyBuffered = true
		for !r.wire.filled && r.wire.read() == nil {
		}
		r.socket.onlyBuffered = false
	}
	return err
}

// keepaliveWait is how long keepalives may gather. A server that stops asks for a reply in
// one, and waits for it.
const keepaliveWait = 100 * time.Millisecond

// worthWaking returns how much has to arrive before it is worth looking at.
func (r *run) worthWaking(now time.Time) int {
	switch {
	case r.pacer.busy:
		return wakeForMany
	case r.inside, r.wire.w > r.wire.r, now.Sub(r.lastReceived) >= keepaliveWait:
		return wakeAtOnce
	}
	return wakeForRow // other transactions are going on, or were a moment ago
}

// read waits for something to arrive, but not longer than until due.
func (r *run) read(ctx context.Context, due time.Time) (arrived bool, err error) {
	if !due.Equal(r.deadline) {
		if err := r.wire.conn.SetReadDeadline(due); err != nil {
			return false, r.lost(err)
		}
		r.deadline = due
	}
	// The end of ctx moves the deadline too: one of the two notices the other.
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	err = r.wire.read()
	switch {
	case err == nil:
		r.lastReceived = time.Now()
		r.contact.heard(r.lastReceived)
		return true, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, nil
	}
	return false, r.lost(err)
}

// lost is the end of the connection.
func (r *run) lost(err error) error {
	r.broken = true
	return fmt.Errorf("%w: stream: %w", ErrUnreachable, err)
}

// due is when tick has something to do.
func (r *run) due() time.Time {
	due := r.reporter.sent.Add(r.interval)
	if r.asked {
		due = earlier(due, r.reporter.sent.Add(minStatusGap))
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tick does what is due.
func (r *run) tick(ctx context.Context, now time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	silent := now.Sub(r.lastReceived)
	if !r.blocked && silent >= r.silence() {
		r.broken = true
		return fmt.Errorf("%w: stream: nothing arrived for %s", ErrUnreachable, silent)
	}
	if r.requests >= stoppingRequests {
		return fmt.Errorf("%w: it waits until %s is confirmed, and %s is", ErrServerStopping, r.reporter.limit, r.reporter.last)
	}
	since := now.Sub(r.reporter.sent)
	if since < r.interval && (!r.asked || since < minStatusGap) {
		return nil
	}
	return r.report(now, !r.blocked && silent >= r.contact.limit/3)
}

// report sends a status update.
func (r *run) report(now time.Time, ask bool) error {
	confirmed, err := r.reporter.reportable(r.confirmed())
	if err != nil {
		return err
	}
	if err := r.wire.conn.SetWriteDeadline(now.Add(r.silence())); err != nil {
		return r.lost(err)
	}
	if err := r.reporter.send(now, confirmed, ask); err != nil {
		return r.lost(err)
	}
	r.asked = false
	r.interval = min(2*r.interval, r.longest)
	return nil
}
