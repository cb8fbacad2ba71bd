package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// Run reads until ctx is done, and then returns its cause, or until the stream ends. It
// hands on a batch as soon as nothing more has arrived, and waits while out takes none or
// no batch has been released; meanwhile nothing is read. It calls confirmed, which must
// not block, at least once per StatusInterval and reports its result. It never closes out.
//
// Run is called once, after Start, and is the only goroutine on the connection.
func (s *Stream) Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *Batch) error {
	r := &run{
		Stream: s, confirmed: confirmed, out: out,
		interval: s.cfg.StatusInterval,
		heard:    time.Now(),
		stopping: stopping{prompt: s.silence() / 4},
		timer:    time.NewTimer(0),
	}
	if s.timeout > 0 {
		r.interval = min(r.interval, s.timeout/3)
	}
	release := interruptible(ctx, s.wire.conn.SetReadDeadline)
	err := r.loop(ctx)
	release()
	if r.low {
			rc, _ := r.wire.conn.(syscall.Conn).SyscallConn()
			rc.Control(func(fd uintptr) {
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, 1)
			})
	}
	r.timer.Stop()
	r.probe.stop()
	// What is not cut yet leaves the batches: they may be in other hands.
	s.wire.use(make([]byte, max(smallBuffer, s.wire.w-s.wire.r)))
	return err
}

// A run is the state of Stream.Run.
type run struct {
	*Stream
	confirmed func() pglogrepl.LSN
	out       chan<- *Batch
	interval  time.Duration
	batch     *Batch // being filled; its memory is the wire's

	heard    time.Time // when something last arrived; not before reading was resumed
	blocked  bool      // nothing is read at the moment
	asked    bool      // the server wants a status update
	deadline time.Time // the connection's read deadline
	stopping stopping
	probe    probe
	pacer    pacer
	low bool
	filled   bool        // the last read left no room: more may be waiting
	timer    *time.Timer // for the time while nothing is read
}

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

// makeRoom gives the batch, which must be empty, memory for a message of size bytes.
func (r *run) makeRoom(ctx context.Context, size int) error {
	if size > r.wire.max {
		return fmt.Errorf("%w: a message of %d bytes exceeds the limit of %d bytes", ErrRow,
			size-headerSize-walHeaderSize, r.cfg.MaxMessageBytes)
	}
	if _, err := r.wait(ctx, waitFor{large: r.pool.large}); err != nil {
		return err
	}
	r.batch.large = make([]byte, size)
	r.wire.use(r.batch.large)
	return nil
}

// finish hands on what was read before the stream ended, and returns why it did. The
// server is not told anything any more.
func (r *run) finish(ctx context.Context, ended error) error {
	if len(r.batch.Messages) > 0 {
		select {
		case r.out <- r.batch:
			r.batch = nil
		case <-ctx.Done():
		}
	}
	return ended
}

// receive blocks until something arrives or there is something else to do.
func (r *run) receive(ctx context.Context, now time.Time) error {
	if hackLow {
		if r.pacer.busy != r.low {
			r.low = r.pacer.busy
			v := 1
			if r.low {
				v = lowN
			}
			rc, _ := r.wire.conn.(syscall.Conn).SyscallConn()
			rc.Control(func(fd uintptr) {
				if err := syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, v); err != nil {
					panic(err)
				}
			})
		}
		if pause := r.pacer.pause(now, r.heard); hackD > 0 && pause > 0 && !r.filled {
			r.timer.Reset(hackD)
			<-r.timer.C
			now = time.Now()
		}
		if r.low && !r.filled {
			r.wire.conn.SetReadDeadline(now.Add(2*time.Millisecond))
			r.deadline = time.Time{}
			err := r.wire.read()
			if err == nil {
				r.heard, r.filled = time.Now(), r.wire.w == len(r.wire.buf)
				return nil
			}
		}
	} else if pause := r.pacer.pause(now, r.heard); pause > 0 && !r.filled {
		r.timer.Reset(pause)
		<-r.timer.C
	}
	if due := r.due(); !due.Equal(r.deadline) {
		if err := r.wire.conn.SetReadDeadline(due); err != nil {
			return r.lost(err)
		}
		r.deadline = due
	}
	// The end of ctx moves the deadline too: one of the two notices the other.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := r.wire.read()
	switch {
	case err == nil:
		r.heard, r.filled = time.Now(), r.wire.w == len(r.wire.buf)
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return r.lost(err)
}

// lost is the end of the connection.
func (r *run) lost(err error) error {
	r.broken = true
	if _, ok := r.stopping.recognised(); ok {
		return fmt.Errorf("%w: it closed the connection: %w", ErrServerStopping, err)
	}
	return fmt.Errorf("%w: stream: %w", ErrUnreachable, err)
}

// due is when tick has something to do.
func (r *run) due() time.Time {
	due := r.reporter.sent.Add(r.interval)
	if r.asked {
		due = earlier(due, r.reporter.sent.Add(minStatusGap))
	}
	if since, ok := r.stopping.recognised(); ok {
		due = earlier(due, since.Add(r.cfg.ShutdownGrace))
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
	silent := now.Sub(r.heard)
	if !r.blocked && silent >= r.silence() {
		r.broken = true
		return fmt.Errorf("%w: stream: nothing arrived for %s", ErrUnreachable, silent)
	}
	if since, ok := r.stopping.recognised(); ok && now.Sub(since) >= r.cfg.ShutdownGrace {
		return fmt.Errorf("%w: it was kept waiting for %s: confirmed is %s of %s",
			ErrServerStopping, r.cfg.ShutdownGrace, r.reporter.last, r.reporter.limit)
	}
	since := now.Sub(r.reporter.sent)
	if since < r.interval && (!r.asked || since < minStatusGap) {
		return nil
	}
	return r.report(now, !r.blocked && silent >= r.silence()/2)
}

// report sends a status update.
func (r *run) report(now time.Time, ask bool) error {
	confirmed := r.confirmed()
	if err := r.reporter.check(confirmed); err != nil {
		return err
	}
	if err := r.wire.conn.SetWriteDeadline(now.Add(r.silence())); err != nil {
		return r.lost(err)
	}
	if err := r.reporter.send(now, confirmed, ask); err != nil {
		return r.lost(err)
	}
	r.asked = false
	return nil
}

// serverStops notes that the server is stopping: it is kept waiting for ShutdownGrace.
func (r *run) serverStops(now time.Time) {
	if _, ok := r.stopping.recognised(); ok {
		return
	}
	r.stopping.since = now
	r.log.Info("the server is stopping", slog.Duration("grace", r.cfg.ShutdownGrace),
		slog.String("reported", r.reporter.last.String()), slog.String("read", r.reporter.limit.String()))
}

var hackLow = os.Getenv("LOW") != ""
var lowN, _ = strconv.Atoi(os.Getenv("LOW"))

var hackD, _ = time.ParseDuration(os.Getenv("PACE"))
