package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
)

// Run reads the stream and sends it to out until ctx is done, or until the session ends. It
// returns the cause of ctx or why the session ended. It never closes out.
//
// Run sends a batch as soon as no more data has arrived. At high rates it collects messages
// for a millisecond. It does not read while nobody receives from out, or while all batches
// are in use. A [*RowError] is the last message that it sends; after that, Run only confirms
// positions until ctx is done.
//
// Run calls confirmed at least once per StatusInterval and confirms its result to Postgres,
// as far as this session has read. At first it does so more often, so that a process that
// crashes again and again within the interval makes progress. confirmed must not block, and
// Run returns an error if its result decreases.
//
// Run must be called once, after Start. Its goroutine is the only one that uses the
// connection.
func (s *Stream) Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *Batch) error {
	now := time.Now()
	r := &run{
		Stream: s, confirmed: confirmed, out: out,
		maxInterval:  min(s.cfg.StatusInterval, s.contact.limit/3), // leaves the server time to reply
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
	// Unparsed bytes move out of the batches, which the receiver may still have.
	s.wire.use(make([]byte, max(smallBuffer, s.wire.w-s.wire.r)))
	return err
}

// A run is the state of Stream.Run.
type run struct {
	*Stream
	confirmed   func() pglogrepl.LSN
	out         chan<- *Batch
	interval    time.Duration // between status updates
	maxInterval time.Duration
	commitLSN   pglogrepl.LSN // of the transaction being read; 0: none
	noticed     string        // SQLSTATE of the last notice that was logged
	noticedAt   time.Time     // when it was logged
	batch       *Batch        // being filled; the wire reads into its memory

	lastReceived time.Time // when data last arrived, or reading was resumed if that is later
	blocked      bool      // waiting for the receiver, not reading
	inside       bool      // inside a transaction
	foreign      bool      // a message of another prefix was logged
	asked        bool      // the server has requested a reply
	requests     int       // number of such requests in a row
	requested    time.Time // time of the last request
	deadline     time.Time // read deadline of the connection
	pacer        pacer
	timer        *time.Timer // for status updates while blocked
}

// firstInterval is the first interval between two status updates. Each is twice as long as the
// one before, up to maxInterval.
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

// handOver sends the batch to out and gets another one.
func (r *run) handOver(ctx context.Context) error {
	if _, err := r.wait(ctx, waitFor{out: r.out, batch: r.batch}); err != nil {
		return err
	}
	return r.nextBatch(ctx)
}

// nextBatch gets a batch from the pool. Received bytes that are not parsed yet move into it.
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

// makeRoom allocates memory for the next message, of size bytes. The batch must be empty. If the
// filter drops the message, makeRoom skips it instead.
func (r *run) makeRoom(ctx context.Context, size int) error {
	start, data, change := r.wire.change()
	switch {
	case change && r.discards(data, size-headerSize-walHeaderSize):
		r.requests = 0
		r.wire.skip(size)
		return nil
	case change && size > r.wire.max:
		return r.finish(ctx, r.rowError(fmt.Errorf("%w: the row at %s has %d bytes and exceeds the limit of %d bytes", ErrRow,
			start, size-headerSize-walHeaderSize, r.cfg.MaxMessageBytes)))
	case size > r.wire.max:
		r.broken = true
		return fmt.Errorf("stream: a message that is no WAL data has %d bytes", size)
	}
	if _, err := r.wait(ctx, waitFor{large: r.pool.large}); err != nil {
		return err
	}
	r.batch.large = make([]byte, size)
	r.wire.use(r.batch.large)
	return nil
}

// finish sends the last batch and returns ended, the reason for the end of the stream. It waits for the
// receiver for at most one status interval, and sends no more status updates.
//
// A *RowError becomes the last message of the batch. The session then continues without reading until
// ctx is done, so that the rows before it can be delivered and confirmed.
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
		case <-time.After(r.maxInterval):
		case <-ctx.Done():
		}
	}
	return ended
}

// receive blocks until data arrives or tick has something to do.
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
		due = earlier(due, time.Now().Add(busyPause)) // less data than wakeForMany does not wake the reader
	}
	arrived, err := r.read(ctx, due)
	if busy && !arrived && err == nil {
		// Less than wakeForMany may have arrived. A read finds it, but only before the deadline.
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

// keepaliveWait is how long keepalives may wait to be read. It is short because a server that
// shuts down requests a reply in one.
const keepaliveWait = 100 * time.Millisecond

// worthWaking returns how many bytes have to arrive to wake the reader.
func (r *run) worthWaking(now time.Time) int {
	switch {
	case r.pacer.busy:
		return wakeForMany
	case r.inside, r.wire.w > r.wire.r, now.Sub(r.lastReceived) >= keepaliveWait:
		return wakeAtOnce
	}
	return wakeForRow // keepalives arrive, because transactions commit that do not concern us
}

// read waits until data arrives or the time is due.
func (r *run) read(ctx context.Context, due time.Time) (arrived bool, err error) {
	if !due.Equal(r.deadline) {
		if err := r.wire.conn.SetReadDeadline(due); err != nil {
			return false, r.lost(err)
		}
		r.deadline = due
	}
	// interruptible also moves the deadline when ctx ends. If it did so before the call above,
	// ctx.Err shows it.
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

// lost returns the error for a lost connection.
func (r *run) lost(err error) error {
	r.broken = true
	return fmt.Errorf("%w: stream: %w", ErrUnreachable, err)
}

// due returns when tick has something to do.
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

// tick checks that the session is alive and sends a status update if one is due.
func (r *run) tick(ctx context.Context, now time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	silent := now.Sub(r.lastReceived)
	if !r.blocked && silent >= r.maxSilence() {
		r.broken = true
		return fmt.Errorf("%w: stream: the server sent nothing for %s", ErrUnreachable, silent)
	}
	if r.requests >= stoppingRequests {
		return fmt.Errorf("%w: it waits for the confirmation of %s, and %s is confirmed", ErrServerStopping, r.reporter.limit, r.reporter.reported())
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
	if err := r.wire.conn.SetWriteDeadline(now.Add(r.maxSilence())); err != nil {
		return r.lost(err)
	}
	if err := r.reporter.send(now, confirmed, ask); err != nil {
		return r.lost(err)
	}
	r.asked = false
	r.interval = min(2*r.interval, r.maxInterval)
	return nil
}
