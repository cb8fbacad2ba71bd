package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// patience is the limit of each wait of a test. It is no claim about the Writer: on a busy machine everything may take long.
const patience = 4 * time.Minute

// Context returns a context that is canceled when the test ends, or after some minutes.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// A Journal collects log lines for a test.
type Journal struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{} // cap 1
}

// NewJournal returns an empty Journal.
func NewJournal() *Journal { return &Journal{changed: make(chan struct{}, 1)} }

// Write appends b.
func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	signal(j.changed)
	return j.buf.Write(b)
}

// String returns all lines.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// Logger returns a logger that writes to the Journal.
func (j *Journal) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// A Session is a running [sink.Writer] and the outcomes that it has reported. It fails the test if the
// Writer reports two outcomes of a record, or an outcome after Run has returned.
type Session struct {
	Sink    sink.Sink
	Writer  sink.Writer
	Journal *Journal
	Stop    context.CancelCauseFunc // cancels the context of Run

	tb    testing.TB
	ended chan struct{} // closed when Run has returned
	err   error         // of Run

	mu      sync.Mutex
	acked   map[uint64]bool
	failed  map[uint64]error
	changed chan struct{} // cap 1
}

// StartSession starts a Writer of a Sink that logs to j, and stops the Writer when the test ends.
func StartSession(tb testing.TB, on sink.Sink, j *Journal, cfg sink.WriterConfig) *Session {
	tb.Helper()
	return StartWriter(tb, on, on.NewWriter(cfg), j)
}

// StartWriter is like StartSession, with a Writer of the Sink that has not run.
func StartWriter(tb testing.TB, on sink.Sink, w sink.Writer, j *Journal) *Session {
	tb.Helper()
	s := &Session{
		Sink: on, Writer: w, Journal: j, tb: tb, ended: make(chan struct{}),
		acked: make(map[uint64]bool), failed: make(map[uint64]error), changed: make(chan struct{}, 1),
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(tb.Context()))
	s.Stop = stop
	go func() {
		defer close(s.ended)
		s.err = s.Writer.Run(ctx, s.done)
	}()
	tb.Cleanup(func() {
		stop(errors.New("the test is over"))
		<-s.ended
	})
	return s
}

// done is the callback with which the Writer reports outcomes.
func (s *Session) done(seqs []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		s.tb.Error("done was called after Run had returned")
	default:
	}
	for _, seq := range seqs {
		if s.acked[seq] || s.failed[seq] != nil {
			s.tb.Errorf("record %d has two outcomes, the second is %v", seq, err)
		}
		if err == nil {
			s.acked[seq] = true
		} else {
			s.failed[seq] = err
		}
	}
	signal(s.changed)
}

// Acked returns the number of acknowledged records.
func (s *Session) Acked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// IsAcked reports whether a record is acknowledged.
func (s *Session) IsAcked(seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked[seq]
}

// Failed returns the errors of the records that the broker rejected, by Seq.
func (s *Session) Failed() map[uint64]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.failed)
}

// Await blocks until cond returns true. It calls cond after each outcome and log line, and every 10 ms.
// It fails the test if Run returns before.
func (s *Session) Await(what string, cond func() bool) {
	s.tb.Helper()
	ctx := Context(s.tb)
	for !cond() {
		select {
		case <-s.changed:
		case <-s.Journal.changed:
		case <-time.After(10 * time.Millisecond): // changes of Stat signal nothing
		case <-s.ended:
			if cond() {
				return
			}
			s.tb.Fatalf("waiting for %s: Run has returned: %v\n%s", what, s.err, s.Journal)
		case <-ctx.Done():
			s.tb.Fatalf("waiting for %s: %+v\n%s", what, s.Sink.Stat(), s.Journal)
		}
	}
}

// AwaitAcked flushes and blocks until n records are acknowledged.
func (s *Session) AwaitAcked(n int) {
	s.tb.Helper()
	s.Writer.Flush()
	s.Await(fmt.Sprintf("%d acknowledged records", n), func() bool { return s.Acked() >= n })
}

// Ended reports whether Run has returned.
func (s *Session) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Wait waits until Run has returned, and returns its error.
func (s *Session) Wait() error {
	s.tb.Helper()
	select {
	case <-s.ended:
		return s.err
	case <-Context(s.tb).Done():
		s.tb.Fatalf("Run does not return: %+v\n%s", s.Sink.Stat(), s.Journal)
		return nil
	}
}

// Drain calls CloseSend and waits until Run has returned. It fails the test unless exactly n records are
// acknowledged and none is rejected.
func (s *Session) Drain(n int) {
	s.tb.Helper()
	s.Writer.CloseSend()
	if err := s.Wait(); err != nil {
		s.tb.Fatalf("Run: %v\n%s", err, s.Journal)
	}
	if failed := s.Failed(); s.Acked() != n || len(failed) > 0 {
		s.tb.Fatalf("%d of %d records are acknowledged, failed are %v", s.Acked(), n, failed)
	}
	if st := s.Sink.Stat(); st.InFlightRecords != 0 || st.InFlightBytes != 0 {
		s.tb.Errorf("in flight at the end: %d records, %d bytes", st.InFlightRecords, st.InFlightBytes)
	}
}

// signal puts a token into a channel of capacity 1, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
