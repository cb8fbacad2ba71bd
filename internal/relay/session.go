package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// closeTimeout bounds the last write of the position and the last status update of a session.
const closeTimeout = 5 * time.Second

// batchQueue is how many batches may wait between the reader and the decoder. The stream
// owns a few more; its pool, not this number, bounds the memory.
const batchQueue = 2

// errStopReading is the cause with which a session is closed.
var errStopReading = errors.New("reading stopped by the session")

// A source is what a session needs of a replication stream.
type source interface {
	Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error
	Close(ctx context.Context, confirmed pglogrepl.LSN) error
	Expired() error // the slot may belong to another instance
	Heard(at time.Time)
}

// A session is one replication connection that holds the slot, from START_REPLICATION to its end. It
// reads at once, so that the server knows that somebody is there, and confirms nothing until a
// tenure gives it positions.
type session struct {
	stream source
	id     slotIdentity
	pid    uint32 // of the server process that holds the slot
	clock  *clock

	batches chan *replication.Batch
	life    context.Context         //nolint:containedctx // ends with the reading; its cause is why
	stop    context.CancelCauseFunc // ends the reading
	ended   chan struct{}           // closed when the reading has ended
	err     error                   // why; not before ended

	flow      *flow                          // learns which position Postgres was told
	telling   pglogrepl.LSN                  // what Run reports now; belongs to it
	positions atomic.Pointer[positionWriter] // whose position is confirmed; nil: none
	closed    bool                           // the stream; belongs to the reading until ended
	unsaved   error                          // why the last position is not confirmed; as closed
}

// startSession reads from a stream that has been started, until the stream ends or close is called.
// flow and phase are told what becomes of it, phase before the connection is closed.
func startSession(ctx context.Context, stream source, id slotIdentity, pid uint32, flow *flow, phase *phase) *session {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	reading, stop := context.WithCancelCause(life)
	s := &session{
		stream: stream, id: id, pid: pid, clock: newClock(),
		batches: make(chan *replication.Batch, batchQueue), life: life, stop: stop, ended: make(chan struct{}),
		flow: flow,
	}
	go func() { // close waits for it
		defer close(s.ended)
		defer close(s.batches)
		s.err = stream.Run(reading, s.nextReport, s.batches)
		end(s.err)
		if s.unstopped() {
			phase.endSession(s.err)
		}
		if reading.Err() == nil {
			s.closeStream(ctx) // a server that shuts down must not wait for the sink
		}
	}()
	return s
}

// nextReport is what Run asks before each status update. That it asks shows that it has sent the one
// before, and that the process runs. nextReport ends the session if the process has stood still, or if the
// stream has not heard from the server for too long.
func (s *session) nextReport() pglogrepl.LSN {
	s.flow.noteTold(s.telling)
	s.telling = s.confirmedPosition()
	err := s.clock.tick(time.Now())
	if err == nil {
		err = s.stream.Expired()
	}
	if err != nil {
		s.stop(err)
	}
	return s.telling
}

// confirmedPosition returns what the stream may confirm. 0 stands for nothing.
func (s *session) confirmedPosition() pglogrepl.LSN {
	w := s.positions.Load()
	if w == nil {
		return 0
	}
	return w.confirmedPosition()
}

// closeStream confirms the position of the record and closes the connection, once. Run of the stream
// must have returned.
func (s *session) closeStream(ctx context.Context) {
	if s.closed {
		return
	}
	s.closed = true
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	confirmed := s.confirmedPosition()
	if s.unsaved = s.stream.Close(last, confirmed); s.unsaved == nil {
		s.flow.noteTold(confirmed)
	}
}

// close ends the reading because of cause and closes the connection, after the last position has been
// confirmed. It returns why the position may not have been.
func (s *session) close(ctx context.Context, cause error) error {
	s.stop(cause)
	<-s.ended
	s.closeStream(ctx)
	return s.unsaved
}

// unstopped reports whether the reading has ended by itself. The session must have ended.
func (s *session) unstopped() bool { return s.err != nil && !errors.Is(s.err, errStopReading) }

// during returns a context that ends with the session too, with its cause.
func (s *session) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// openSession takes the slot: when it returns, the server sends, from where the present tenure ended
// or from the slot's own position. It also returns the catalog as it was before.
func (r *Relay) openSession(ctx context.Context) (*session, *replication.Stream, *catalog.State, error) {
	state := r.catalog
	r.catalog = nil
	if state == nil {
		var err error
		if state, err = r.readCatalog(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := r.compareCatalog(ctx, state); err != nil {
		return nil, nil, nil, err
	}
	opening, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	stream, err := replication.Open(opening, r.cfg.Source, r.log)
	if err != nil {
		return nil, nil, nil, err
	}
	id := slotIdentity{system: stream.System(), slot: r.cfg.Source.Slot}
	var from pglogrepl.LSN
	if t := r.tenure; t != nil && t.id == id {
		from = t.tracker.Confirmed()
	}
	if err := catalog.Diagnose(opening, stream.Config(), stream.Start(opening, from)); err != nil {
		_ = stream.Close(opening, 0)
		return nil, nil, nil, r.endLostSender(ctx, stream, err)
	}
	r.sender = sender{id.system.ID, stream.PID()}
	return startSession(ctx, stream, id, stream.PID(), &r.flow, &r.phase), stream, state, nil
}

// A sender is a server process that streams.
type sender struct {
	systemID string
	pid      uint32
}

// errLostSender: the server had not noticed that the last session's connection was lost.
var errLostSender = errors.New("the server process of the lost connection still held the slot, and was ended")

// errSenderKept: the slot is in use, perhaps by the relay itself.
var errSenderKept = errors.New("it may be the process of the lost connection, which could not be ended")

// endLostSender ends the server process of the last session if that is why the stream could not be
// started with err, and returns err or, if so, errLostSender.
func (r *Relay) endLostSender(ctx context.Context, stream *replication.Stream, err error) error {
	if !errors.Is(err, replication.ErrSlotInUse) || r.sender.pid == 0 || r.sender.systemID != stream.System().ID {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	ended, failed := catalog.EndSender(ctx, stream.Config().Conn, r.cfg.Source.Slot, r.sender.pid)
	switch {
	case failed != nil:
		return fmt.Errorf("%w; %w: %w", err, errSenderKept, failed)
	case ended:
		return errLostSender
	}
	return err
}
