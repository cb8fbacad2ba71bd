package relay

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// closeTimeout bounds the last report to the server at the end of a session.
const closeTimeout = 5 * time.Second

// batchQueue is how many batches may wait between the reader and the decoder. The stream
// owns a few more; its pool, not this number, bounds the memory.
const batchQueue = 2

// errRead is the cause with which publish ends the reading.
var errRead = errors.New("nothing more is read")

// A source is what a session needs of a replication stream.
type source interface {
	Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error
	Close(ctx context.Context, confirmed pglogrepl.LSN) error
	Expired() error // of the session: the slot may be somebody else's
}

// A session is one replication stream from its start to its end. It is used once.
type session struct {
	stream       source
	writer       sink.Writer
	tracker      *checkpoint.Tracker
	recorder     *recorder
	publication  *publication
	watch        func(context.Context) error // looks at the catalog until the context ends; an error ends the session
	drainTimeout time.Duration
	log          *slog.Logger

	seqs   []checkpoint.Seq // of the answer being acknowledged
	closed bool             // the stream; the reading goroutine's until it has ended
	behind error            // why the position left with server or record is not the last one; the same
}

func newSession(c *Relay, stream source, newWriter func(sink.WriterConfig) sink.Writer, start pglogrepl.LSN, lost cut, published *catalog.Publication) *session {
	tracker := checkpoint.New(start, c.confirmed)
	c.flow.begin(tracker)
	c.recorder.begin(tracker)
	s := &session{
		stream: stream, tracker: tracker, recorder: c.recorder,
		publication: &publication{
			decoder: decoder.New(), router: c.router, tracker: tracker,
			flow: &c.flow, label: c.cfg.Name, published: published, cut: lost,
			updates: newUpdates(c.cfg.Route.OnUpdate, c.log), messages: c.cfg.Messages, skip: c.skip,
			deadLetters: c.deadLetters, spans: newSpans(c.cfg.Tracer),
			acked: make(chan struct{}, 1), maxSpan: maxSpan,
		},
		watch:        func(context.Context) error { return nil },
		drainTimeout: c.cfg.DrainTimeout,
		log:          c.log,
	}
	cfg := sink.WriterConfig{Fence: fence{stream}.check, Substitute: s.deadRecord, Answered: c.cfg.Answered}
	if spans := s.publication.spans; spans != nil {
		cfg.Delivered = spans.delivered
	}
	s.writer = newWriter(cfg)
	s.publication.writer = s.writer
	return s
}

// confirmed takes each transaction that the tracker hands out.
func (c *Relay) confirmed(tx checkpoint.Transaction) {
	if tx.Snapshot.Text != "" {
		c.recorder.delivered(tx.Snapshot)
	}
	if c.cfg.Delivered == nil || tx.CommitTime.IsZero() {
		return
	}
	trace := ""
	if tx.TraceID != ([16]byte{}) {
		trace = hex.EncodeToString(tx.TraceID[:])
	}
	c.cfg.Delivered(max(0, time.Since(tx.CommitTime)), trace)
}

// run returns when ctx is done and every stage has stopped, or when a stage has failed and
// the others have stopped. Stages stop in the order data flows: each ends the next. When it
// returns, everything sent has an outcome, except after an error that wraps
// errDrainTimeout.
//
// The error is nil after a clean stop; otherwise it is the first cause: a record that was
// not taken, a row that cannot be published, or the end of the stream.
func (s *session) run(ctx context.Context) error {
	soft, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	hard, cancel := withGrace(soft, s.drainTimeout)
	defer cancel()
	reading, stopReading := context.WithCancelCause(hard)
	defer stopReading(nil)
	batches := make(chan *replication.Batch, batchQueue)

	read := make(chan struct{})
	if s.publication.copy != nil {
		s.publication.copy.lost = read
	}
	var stages sync.WaitGroup // every goroutine of a session is waited for below
	var readErr error
	stages.Go(func() {
		defer close(batches)
		defer close(read)
		readErr = s.stream.Run(reading, s.recorder.confirmed, batches)
		if reading.Err() == nil {
			s.close(ctx) // the source has ended; a server that stops must not wait for the sink
		}
	})
	stages.Go(func() {
		defer s.writer.CloseSend()
		if err := s.publication.run(hard, soft.Done(), batches); err != nil {
			fail(err)
		}
		stopReading(errRead)
	})
	stages.Go(func() {
		err := s.writer.Run(hard, func(seqs []uint64, err error) {
			if err == nil {
				err = s.ack(seqs)
			}
			if err != nil {
				fail(s.locate(seqs, err)) // nothing after a lost record may be confirmed
			}
		})
		if err != nil {
			fail(err)
		}
	})
	alongside, stop := context.WithCancel(hard)
	defer stop()
	var others sync.WaitGroup
	for _, run := range []func(context.Context) error{s.recorder.run, s.watch, s.publication.deadLetters.run} {
		others.Go(func() {
			if err := run(alongside); err != nil {
				fail(err)
			}
		})
	}
	stages.Wait()
	stop()
	others.Wait()

	s.record(ctx)
	s.close(ctx)
	return s.outcome(ctx, soft, readErr)
}

// close reports the position that is recorded and closes the connection, once. After Run of
// the stream has returned.
func (s *session) close(ctx context.Context) {
	if s.closed {
		return
	}
	s.closed = true
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.stream.Close(last, s.recorder.confirmed()); err != nil {
		s.leave(ctx, "not reported", err)
	}
}

// record records the position reached, so that close can report it. After all stages have
// ended.
func (s *session) record(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	record := s.recorder.record
	if s.closed {
		record = s.recorder.recordLate
	}
	if err := record(last); err != nil {
		s.leave(ctx, "not recorded", err)
	}
}

// leave notes that the next session begins before what this one has confirmed: the last
// position is what, because of err.
func (s *session) leave(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.log.WarnContext(ctx, "last position not kept: the next session may repeat what it covers",
			slog.String("confirmed", s.tracker.Confirmed().String()), slog.String("what", what), slog.Any("err", err))
		return
	}
	if s.behind == nil {
		s.behind = fmt.Errorf("%w: position %s is %s: %w", errLeftBehind, s.tracker.Confirmed(), what, err)
	}
}

// outcome says why the session ended.
func (s *session) outcome(ctx, soft context.Context, readErr error) error {
	stopped := context.Cause(ctx)
	if cause := context.Cause(soft); cause != nil && !errors.Is(cause, stopped) {
		return cause
	}
	if stopped == nil {
		return readErr
	}
	if n := s.tracker.Outstanding(); n > 0 {
		return fmt.Errorf("%w: %d records", errDrainTimeout, n)
	}
	if commitLSN, acked, open := s.tracker.Open(); open && acked > 0 {
		return fmt.Errorf("%w: transaction %s was not read to its end, %d rows of it are sent again", errDrainTimeout, commitLSN, acked)
	}
	return s.behind
}

// ack is called from one goroutine at a time.
func (s *session) ack(seqs []uint64) error {
	defer s.publication.acknowledged()
	s.seqs = s.seqs[:0]
	for _, seq := range seqs {
		s.seqs = append(s.seqs, checkpoint.Seq(seq))
	}
	return s.tracker.Ack(s.seqs...)
}

// deadRecord is the writer's substitute for a record that the broker rejects.
func (s *session) deadRecord(r *sink.Record, refused *sink.RecordError) *sink.Record {
	s.publication.spans.refused(refused)
	commitLSN, index, ok := s.tracker.Locate(checkpoint.Seq(r.Seq))
	if !ok {
		return nil
	}
	tx := encode.Tx{CommitLSN: commitLSN, Timestamp: r.Timestamp}
	return s.publication.deadLetters.record(tx, index, r, refused)
}

// locate names the row behind a record that was not delivered.
func (s *session) locate(seqs []uint64, err error) error {
	if len(seqs) == 0 {
		return err
	}
	commitLSN, index, ok := s.tracker.Locate(checkpoint.Seq(seqs[0]))
	if !ok {
		return err
	}
	lost := &DeliveryError{CommitLSN: commitLSN, Row: index, Err: err}
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		for _, h := range rec.Headers {
			if h.Key == encode.IDHeader {
				lost.ID = string(h.Value)
			}
		}
	}
	return lost
}

// withGrace returns a context that ends d after parent.
func withGrace(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrainTimeout)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
