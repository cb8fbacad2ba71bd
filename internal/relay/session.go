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

// closeTimeout bounds the last write of the position and the last status update of a session.
const closeTimeout = 5 * time.Second

// batchQueue is how many batches may wait between the reader and the decoder. The stream
// owns a few more; its pool, not this number, bounds the memory.
const batchQueue = 2

// errStopReading is the cause with which a session ends the reading.
var errStopReading = errors.New("reading stopped by the session")

// A source is what a session needs of a replication stream.
type source interface {
	Run(ctx context.Context, confirmed func() pglogrepl.LSN, out chan<- *replication.Batch) error
	Close(ctx context.Context, confirmed pglogrepl.LSN) error
	Expired() error // the slot may belong to another instance
}

// A session is one replication stream from its start to its end. It is used once.
type session struct {
	stream       source
	writer       sink.Writer
	tracker      *checkpoint.Tracker
	positions    *positionWriter
	pump         *pump
	watch        func(context.Context) error // reads the catalog until the context ends; an error ends the session
	drainTimeout time.Duration
	log          *slog.Logger

	seqs []checkpoint.Seq // of the outcome being reported

	// The reading goroutine owns these until it has ended.
	closed  bool  // the stream
	unsaved error // why the last position is not in the record or not confirmed
}

func newSession(r *Relay, stream source, newWriter func(sink.WriterConfig) sink.Writer, from resumePoint, published *catalog.Publication) *session {
	tracker := checkpoint.New(from.confirmed, r.observeConfirmed)
	r.flow.startSession(tracker)
	r.positions.startSession(tracker)
	s := &session{
		stream: stream, tracker: tracker, positions: r.positions,
		pump: &pump{
			decoder: decoder.New(), router: r.router, tracker: tracker,
			flow: &r.flow, label: r.cfg.Name, published: published, interrupted: from.interrupted,
			updates: newUpdatePolicy(r.cfg.Route.OnUpdate, r.log), messages: r.cfg.Messages, skip: r.skip,
			deadLetters: r.deadLetters, spans: newSpans(r.cfg.Tracer),
			ackSignal: make(chan struct{}, 1), maxSpan: maxSpan,
		},
		watch:        func(context.Context) error { return nil },
		drainTimeout: r.cfg.DrainTimeout,
		log:          r.log,
	}
	cfg := sink.WriterConfig{Fence: fence{stream}.checkOpen, Substitute: s.replaceRejected, Answered: r.cfg.Answered}
	if spans := s.pump.spans; spans != nil {
		cfg.Delivered = spans.endSpans
	}
	s.writer = newWriter(cfg)
	s.pump.writer = s.writer
	return s
}

// observeConfirmed keeps the snapshot and reports the latency of a transaction that the Tracker has
// confirmed.
func (r *Relay) observeConfirmed(tx checkpoint.Transaction) {
	if tx.Snapshot.Text != "" {
		r.positions.keepSnapshot(tx.Snapshot)
	}
	if r.cfg.Delivered == nil || tx.CommitTime.IsZero() {
		return
	}
	trace := ""
	if tx.TraceID != ([16]byte{}) {
		trace = hex.EncodeToString(tx.TraceID[:])
	}
	r.cfg.Delivered(max(0, time.Since(tx.CommitTime)), trace)
}

// run blocks until ctx is done or a stage has failed, and every stage has stopped. Stages stop in
// the order data flows: each ends the next. When run returns, everything sent has an outcome,
// except after an error that wraps errDrainTimeout.
//
// The error is nil after a clean stop. Otherwise it is the first cause: a rejected record, a row
// that cannot become a record, or the end of the stream.
func (s *session) run(ctx context.Context) error {
	soft, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	hard, cancel := withGrace(soft, s.drainTimeout)
	defer cancel()
	reading, stopReading := context.WithCancelCause(hard)
	defer stopReading(nil)
	batches := make(chan *replication.Batch, batchQueue)

	read := make(chan struct{})
	if s.pump.initialCopy != nil {
		s.pump.initialCopy.streamEnded = read
	}
	var stages sync.WaitGroup
	var readErr error
	stages.Go(func() {
		defer close(batches)
		defer close(read)
		readErr = s.stream.Run(reading, s.positions.confirmedPosition, batches)
		if reading.Err() == nil {
			s.closeStream(ctx) // a server that shuts down must not wait for the sink
		}
	})
	stages.Go(func() {
		defer s.writer.CloseSend()
		if err := s.pump.run(hard, soft.Done(), batches); err != nil {
			fail(err)
		}
		stopReading(errStopReading)
	})
	stages.Go(func() {
		err := s.writer.Run(hard, func(seqs []uint64, err error) {
			if err == nil {
				err = s.ackRecords(seqs)
			}
			if err != nil {
				fail(s.locateRow(seqs, err)) // nothing after a lost record may be confirmed
			}
		})
		if err != nil {
			fail(err)
		}
	})
	alongside, stop := context.WithCancel(hard)
	defer stop()
	var others sync.WaitGroup
	for _, run := range []func(context.Context) error{s.positions.run, s.watch, s.pump.deadLetters.logNew} {
		others.Go(func() {
			if err := run(alongside); err != nil {
				fail(err)
			}
		})
	}
	stages.Wait()
	stop()
	others.Wait()

	s.writeLastPosition(ctx)
	s.closeStream(ctx)
	return s.endError(ctx, soft, readErr)
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
	if err := s.stream.Close(last, s.positions.confirmedPosition()); err != nil {
		s.noteUnsaved(ctx, "not reported", err)
	}
}

// writeLastPosition writes the position reached, so that closeStream can confirm it. All stages must
// have ended.
func (s *session) writeLastPosition(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	write := s.positions.writePosition
	if s.closed {
		write = s.positions.writePositionLate
	}
	if err := write(last); err != nil {
		s.noteUnsaved(ctx, "not recorded", err)
	}
}

// noteUnsaved notes that the next session starts before what this one has confirmed: the last
// position is not recorded or not reported (missing) because of err.
func (s *session) noteUnsaved(ctx context.Context, missing string, err error) {
	if ctx.Err() == nil {
		s.log.WarnContext(ctx, "last position not kept: the next session may repeat what it covers",
			slog.String("confirmed", s.tracker.Confirmed().String()), slog.String("what", missing), slog.Any("err", err))
		return
	}
	if s.unsaved == nil {
		s.unsaved = fmt.Errorf("%w: position %s is %s: %w", errPositionUnsaved, s.tracker.Confirmed(), missing, err)
	}
}

// endError returns why the session ended, nil after a clean stop.
func (s *session) endError(ctx, soft context.Context, readErr error) error {
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
	if commitLSN, acked, open := s.tracker.OpenTransaction(); open && acked > 0 {
		return fmt.Errorf("%w: transaction %s was not read to its end, %d rows of it are sent again", errDrainTimeout, commitLSN, acked)
	}
	return s.unsaved
}

// ackRecords acknowledges records to the Tracker. It is called from one goroutine at a time.
func (s *session) ackRecords(seqs []uint64) error {
	defer s.pump.signalAck()
	s.seqs = s.seqs[:0]
	for _, seq := range seqs {
		s.seqs = append(s.seqs, checkpoint.Seq(seq))
	}
	return s.tracker.Ack(s.seqs...)
}

// replaceRejected is the writer's [sink.Substitute]: it returns the dead letter of a rejected record.
func (s *session) replaceRejected(r *sink.Record, rejected *sink.RecordError) *sink.Record {
	s.pump.spans.failSpan(rejected)
	commitLSN, index, ok := s.tracker.Locate(checkpoint.Seq(r.Seq))
	if !ok {
		return nil
	}
	tx := encode.Tx{CommitLSN: commitLSN, Timestamp: r.Timestamp}
	return s.pump.deadLetters.replaceRecord(tx, index, r, rejected)
}

// locateRow returns err, which is about the first of seqs, with the row that it is about.
func (s *session) locateRow(seqs []uint64, err error) error {
	if len(seqs) == 0 {
		return err
	}
	commitLSN, index, ok := s.tracker.Locate(checkpoint.Seq(seqs[0]))
	if !ok {
		return err
	}
	failed := &deliveryError{commitLSN: commitLSN, row: index, err: err}
	if rec, ok := errors.AsType[*sink.RecordError](err); ok {
		for _, h := range rec.Headers {
			if h.Key == encode.IDHeader {
				failed.id = string(h.Value)
			}
		}
	}
	return failed
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
