package owner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// closeTimeout limits the last write of the position and the last status update of a session.
const closeTimeout = 5 * time.Second

// batchQueue is how many batches may wait between the stream and the pump. The pool of the stream, not
// this number, limits the memory.
const batchQueue = 2

// errStopReading is the cause with which the relay stops reading.
var errStopReading = errors.New("reading stopped by the session")

// A source is the part of a [replication.Stream] that a session needs.
type source interface {
	Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error
	Close(ctx context.Context, confirmed pglogrepl.LSN) error
	Expired() error          // an error if another relay may have the slot
	Reported() pglogrepl.LSN // last confirmed to Postgres
	Heard(at time.Time)
}

// A slotIdentity identifies the slot for which a position is valid. After a promotion, or on another
// server, the same LSN means different data.
type slotIdentity struct {
	system replication.System
	slot   string
}

// A Session is one replication connection that holds the slot, from START_REPLICATION to its end. It
// starts to read immediately, so that the server does not time out, and confirms nothing until an
// ownership sets positions.
type Session struct {
	stream source
	id     slotIdentity
	pid    uint32 // of the WAL sender that holds the slot
	clock  *clock
	from   pglogrepl.LSN // the confirmed position of the slot as of the start of the session

	observer *catalog.Observer // of the server that streams; used by one goroutine at a time: by takeOver, then by the watcher

	batches chan *replication.Batch
	life    context.Context         //nolint:containedctx // ends when the reading is stopped or has ended, with the reason as its cause
	stop    context.CancelCauseFunc // stops the reading
	ended   chan struct{}           // closed when the reading has ended
	err     error                   // why the reading has ended; valid after ended is closed

	noted     func(pglogrepl.LSN)             // called with the position confirmed to Postgres
	positions atomic.Pointer[position.Writer] // its position is confirmed; nil: none
	closed    bool                            // the stream is closed; used by the reading goroutine until ended
	unsaved   error                           // why the last position is not confirmed; as closed
}

// startSession reads from a started stream until the stream ends or close is called. It calls noted with each position that is confirmed
// to Postgres, and ended if the session ends by itself, before the connection is closed.
func startSession(ctx context.Context, stream source, id slotIdentity, pid uint32, noted func(pglogrepl.LSN), ended func(context.Context, error)) *Session {
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &Session{
		stream: stream, id: id, pid: pid, clock: newClock(),
		batches: make(chan *replication.Batch, batchQueue), life: life, stop: stop, ended: make(chan struct{}),
		noted: noted,
	}
	go func() { // close waits for it
		defer close(s.ended)
		defer close(s.batches)
		s.err = stream.Run(life, s.nextReport, s.batches)
		endedItself := life.Err() == nil
		stop(s.err)
		if s.unstopped() {
			ended(ctx, s.err)
		}
		if endedItself {
			s.closeStream(ctx, closeTimeout) // a server that shuts down must not wait for the sink
		}
	}()
	return s
}

// nextReport returns the position for the next status update. Run calls it before each one, so a call shows
// that the process is running. nextReport ends the session if
// the process was suspended, or if the stream has not heard from the server for too long.
func (s *Session) nextReport() pglogrepl.LSN {
	s.noted(s.stream.Reported())
	err := s.clock.tick(time.Now())
	if err == nil {
		err = s.stream.Expired()
	}
	if err != nil {
		s.stop(err)
	}
	return s.confirmedPosition()
}

// confirmedPosition returns the position that the stream may confirm, or 0 for none.
func (s *Session) confirmedPosition() pglogrepl.LSN {
	w := s.positions.Load()
	if w == nil {
		return 0
	}
	return w.Confirmed()
}

// closeStream confirms the position of the record and closes the connection. It waits for the server for at
// most limit. Only the first call has an effect. Run of the stream must have returned.
func (s *Session) closeStream(ctx context.Context, limit time.Duration) {
	if s.closed {
		return
	}
	s.closed = true
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if s.unsaved = s.stream.Close(last, s.confirmedPosition()); s.unsaved == nil {
		s.noted(s.stream.Reported())
	}
}

// close stops the reading with cause, confirms the last position and closes the connection. It returns an
// error if the position may not be confirmed.
func (s *Session) close(ctx context.Context, cause error) error {
	s.stop(cause)
	<-s.ended
	s.closeStream(ctx, closeTimeout)
	return s.unsaved
}

// leave is close before another session, which confirms the position again. So it does not wait for a server
// from which nothing has been heard for too long: the slot may already be free.
func (s *Session) leave(ctx context.Context, cause error) {
	s.stop(cause)
	<-s.ended
	limit := closeTimeout
	if s.stream.Expired() != nil {
		limit = 0
	}
	s.closeStream(ctx, limit)
}

// unstopped reports whether the reading ended without a call of close. The session must have ended.
func (s *Session) unstopped() bool { return s.err != nil && !errors.Is(s.err, errStopReading) }

// cause returns why the reading was stopped or has ended, or nil.
func (s *Session) cause() error { return context.Cause(s.life) }

// during returns a context that ends with ctx or with the session, with the cause of the first.
func (s *Session) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.life, func() { cancel(s.cause()) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// Observer returns the connection to the server that streams. After TakeOver it is the watcher's.
func (s *Session) Observer() *catalog.Observer { return s.observer }

// pause blocks for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
