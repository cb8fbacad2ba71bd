package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A lane has one request outstanding, and an error delays its own lane only.
func TestLanesAreIndependent(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/a/2", "t/b/3", "u/a/4", "t//5", "t//6")
		r := s.want("t/a/1 t/b/3 u/a/4 t//5 t//6")
		r[0].Done(0, errBusy)
		ack(r[1:]...)
		s.want("")
		bubble.Sleep(backoffBase)
		r = s.want("t/a/1")
		if !r[0].Resent {
			s.Error("the request is not marked as resent")
		}
		ack(r...)
		r = s.want("t/a/2")
		if r[0].Resent {
			s.Error("the first request is marked as resent")
		}
		ack(r...)
		s.Drain(6)
		if st := s.base.Stat(); st.Retries != 1 || st.Topics["t"].Records != 5 || st.Topics["u"].Bytes != 2 || !strings.Contains(st.LastError, "destination t: ") {
			s.Errorf("%+v", st)
		}
	})
}

func TestPerDestination(t *testing.T) {
	onStage(t, Options{PerDestination: true, RequestRecords: 2}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/b/2", "t//3", "u/a/4")
		r := s.want("t/a/1+t/b/2 u/a/4")
		ack(r[1])
		r[0].Done(1, errBusy)
		bubble.Sleep(backoffBase)
		ack(s.want("t/b/2")...) // without record 3, so that the broker can recognize the request
		ack(s.want("t//3")...)
		s.Drain(4)
	})
}

// The back-off of a lane grows to its limit, and a broker may ask for a longer one.
func TestBackoff(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1")
		start := time.Now()
		for range 50 {
			bubble.Sleep(backoffMax)
			s.want("t/a/1")[0].Done(0, errBusy)
		}
		synctest.Wait()
		if st := s.base.Stat(); st.Retries != 50 || !st.StalledSince.Equal(start) || st.StallReason != "destination t: the broker is busy" || st.StallMissing != "" {
			s.Errorf("%+v", st)
		}
		bubble.Sleep(backoffMax)
		s.want("t/a/1")[0].Done(0, fmt.Errorf("refused: %w", delayedError{time.Hour}))
		bubble.Sleep(time.Hour - time.Second)
		s.want("")
		bubble.Sleep(time.Second)
		ack(s.want("t/a/1")...)
		synctest.Wait()
		if st := s.base.Stat(); !st.StalledSince.IsZero() || st.StallReason != "" {
			s.Errorf("stalled since %s: %s", st.StalledSince, st.StallReason)
		}
		s.Drain(1)
		if log := s.Journal.String(); strings.Count(log, "sink stalled") != 1 || strings.Count(log, "sink recovered") != 1 {
			s.Error(log)
		}
	})
}

// While the broker cannot be reached, one request at a time asks for it. Requests that fail together are one attempt.
func TestConnectionLost(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		var words []string
		for i := range 20 {
			words = append(words, fmt.Sprintf("t/%d/x", i))
		}
		s.send(words...)
		for _, r := range s.want(strings.Join(words, " ")) {
			bubble.Sleep(time.Millisecond)
			r.Done(0, errLost)
		}
		synctest.Wait()
		if s.base.Stat().Retries != 20 || s.writer.connection.attempts != 1 {
			s.Errorf("%d retries, %d attempts", s.base.Stat().Retries, s.writer.connection.attempts)
		}
		var last *Request
		for n := range 10 {
			bubble.Sleep(backoffMax)
			_, requests := s.published()
			if len(requests) != 1 {
				s.Fatalf("%d requests in attempt %d", len(requests), n)
			}
			if last = requests[0]; n < 9 {
				last.Done(0, errLost)
			}
		}
		if st := s.base.Stat(); st.StalledSince.IsZero() || !strings.Contains(st.StallReason, "no connection") {
			s.Errorf("%+v", st)
		}
		ack(last)
		_, requests := s.published()
		if len(requests) != 19 {
			s.Errorf("%d requests after the broker has responded", len(requests))
		}
		ack(requests...)
		s.Drain(20)
		if log := s.Journal.String(); strings.Count(log, "no connection to the broker, retrying") != 1 || strings.Count(log, "broker responds again") != 1 {
			s.Error(log)
		}
	})
}

// A broker that does not respond is a stall after some time.
func TestSilence(t *testing.T) {
	onStage(t, Options{ReachAdvice: "Start it."}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1")
		r := s.want("t/a/1")
		start := time.Now()
		bubble.Sleep(silenceAfter - time.Millisecond)
		if st := s.base.Stat(); !st.StalledSince.IsZero() {
			s.Errorf("%+v", st)
		}
		bubble.Sleep(time.Millisecond)
		if st := s.base.Stat(); !st.StalledSince.Equal(start) || st.StallReason != "the broker at puppet:1 does not respond" || st.StallAdvice != "Start it." {
			s.Errorf("%+v", st)
		}
		ack(r...)
		s.Drain(1)
	})
}

// A request that waits while others have outcomes is no stall: it may wait for its turn in the Transport.
func TestSlowIsNotSilent(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/b/2")
		r := s.want("t/a/1 t/b/2")
		bubble.Sleep(silenceAfter - time.Millisecond)
		ack(r[0])
		synctest.Wait()
		last := time.Now()
		bubble.Sleep(silenceAfter - time.Millisecond)
		if st := s.base.Stat(); !st.StalledSince.IsZero() {
			s.Errorf("%+v", st)
		}
		bubble.Sleep(time.Millisecond)
		if st := s.base.Stat(); !st.StalledSince.Equal(last) {
			s.Errorf("stalled since %s, want %s", st.StalledSince, last)
		}
		ack(r[1])
		s.Drain(2)
	})
}

// A login that the broker rejects during an outage is logged with its fix: once until the broker responds again, and once a
// minute at most.
func TestDenied(t *testing.T) {
	const line = "broker rejects the connection, retrying"
	denied := fmt.Errorf("%w: %w", ErrConnection, deniedError{})
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		fail := func(err error) {
			s.want("t/a/x")[0].Done(0, err)
			bubble.Sleep(backoffDenied)
			synctest.Wait()
		}
		s.send("t/a/x")
		fail(errLost)
		for range 20 {
			fail(denied)
		}
		if log := s.Journal.String(); strings.Count(log, line) != 1 || !strings.Contains(log, "Replace the password.") || !strings.Contains(log, "level=ERROR") {
			s.Error(log)
		}
		ack(s.want("t/a/x")...)
		synctest.Wait()

		s.send("t/a/x")
		for range 20 {
			fail(denied)
		}
		if log := s.Journal.String(); strings.Count(log, line) != 2 || strings.Count(log, "no connection to the broker, retrying") != 1 {
			s.Error(log)
		}
		ack(s.want("t/a/x")...)
		synctest.Wait()
		s.Drain(2)
		if log := s.Journal.String(); strings.Count(log, "broker responds again") != 2 {
			s.Error(log)
		}
	})
}

// The interval between log lines about rejected connections holds across outages.
func TestDeniedAgainAndAgain(t *testing.T) {
	denied := fmt.Errorf("%w: %w", ErrConnection, deniedError{})
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		began := time.Now()
		for range 100 {
			s.send("t/a/x")
			s.want("t/a/x")[0].Done(0, denied)
			bubble.Sleep(backoffMax)
			ack(s.want("t/a/x")...)
			synctest.Wait()
		}
		s.Drain(100)
		lines, minutes := strings.Count(s.Journal.String(), "broker rejects the connection"), int(bubble.Since(began)/deniedLogInterval)
		if lines < minutes || lines > minutes+1 {
			s.Errorf("%d lines in %d minutes", lines, minutes)
		}
	})
}

// A deniedError is a rejected login, and how to fix it.
type deniedError struct{}

func (deniedError) Error() string  { return "wrong password" }
func (deniedError) Unwrap() error  { return sink.ErrAccess }
func (deniedError) Advice() string { return "Replace the password." }

// A Transport that has waited for a connection asks the fence again. Nothing was sent then.
func TestFenceClosesInPublish(t *testing.T) {
	var closed bool
	fence := func() error {
		if closed {
			return errClosed
		}
		return nil
	}
	onStage(t, Options{RequestRecords: 2}, sink.WriterConfig{Fence: fence}, func(s *stage) {
		s.send("t/a/1", "t/a/2", "t/b/3")
		r := s.want("t/a/1+t/a/2 t/b/3")
		closed = true
		err := r[0].Fence()
		if !errors.Is(err, errClosed) {
			s.Errorf("Fence: %v", err)
		}
		r[0].Done(0, err)
		r[1].Done(0, errBusy)
		bubble.Sleep(time.Minute)
		s.writer.Flush()
		s.want("")
		if st := s.base.Stat(); st.Retries != 1 {
			s.Errorf("%d retries, want that of the request that was sent", st.Retries)
		}
		closed = false
		s.writer.Flush()
		r = s.want("t/a/1+t/a/2 t/b/3")
		if r[0].Resent || !r[1].Resent {
			s.Errorf("resent: %v and %v", r[0].Resent, r[1].Resent)
		}
		closed = true
		r[0].Done(0, r[0].Fence())
		r[1].Done(0, errBusy)
		s.writer.CloseSend()
		var left *sink.UndeliveredError
		if err := s.Wait(); !errors.As(err, &left) || !errors.Is(err, errClosed) || left.Records != 3 || left.Sent != 1 {
			s.Errorf("Run: %+v", err)
		}
		if !s.closed {
			s.Error("the Transport is not closed")
		}
	})
}

// After an error that ends the Writer, outstanding requests still have an outcome.
func TestFatal(t *testing.T) {
	for _, class := range []error{sink.ErrFatal, sink.ErrSuperseded} {
		onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
			s.send("t/a/1", "t/b/2", "t/b/3")
			r := s.want("t/a/1 t/b/2")
			r[0].Done(0, fmt.Errorf("response: %w", class))
			synctest.Wait()
			if err := s.writer.Send(s.Context(), &sink.Record{Seq: 4, Topic: "t"}); !errors.Is(err, class) {
				s.Errorf("Send: %v", err)
			}
			if s.Ended() {
				s.Fatal("Run has not waited for the outstanding request")
			}
			ack(r[1])
			if err := s.Wait(); !errors.Is(err, class) || !s.IsAcked(2) {
				s.Errorf("Run: %v", err)
			}
		})
	}
}

// When its context ends, Run still reports the outcomes that the Transport knows.
func TestStopped(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/b/2", "t/b/3", "t/c/4")
		r := s.want("t/a/1 t/b/2 t/c/4")
		ack(r[0])
		stop := errors.New("stop")
		s.Stop(stop)
		var left *sink.UndeliveredError
		if err := s.Wait(); !errors.As(err, &left) || !errors.Is(err, stop) || left.Records != 3 || left.Sent != 2 || !s.IsAcked(1) {
			s.Errorf("Run: %+v", err)
		}
		if st := s.base.Stat(); st.InFlightRecords != 0 || !st.StalledSince.IsZero() {
			s.Errorf("%+v", st)
		}
	})
}

// A second outcome of a request is ignored, and one that acknowledges too few records is not an acknowledgement.
func TestWrongOutcomes(t *testing.T) {
	onStage(t, Options{RequestRecords: 3}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/a/2", "t/a/3")
		r := s.want("t/a/1+t/a/2+t/a/3")
		r[0].Done(1, nil)
		r[0].Done(3, nil)
		bubble.Sleep(backoffBase)
		r = s.want("t/a/2+t/a/3")
		if s.Acked() != 1 {
			s.Errorf("%d records are acknowledged", s.Acked())
		}
		r[0].Done(7, nil)
		s.Drain(3)
	})
}

// The window has room for one record of any size, and blocks the next one.
func TestWindowWithBigRecords(t *testing.T) {
	onStage(t, Options{WindowBytes: 100_000}, sink.WriterConfig{}, func(s *stage) {
		big := strings.Repeat("x", 200_000)
		s.send("t/a/" + big)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := s.writer.Send(ctx, &sink.Record{Seq: 2, Topic: "t"}); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("Send: %v", err)
		}
		ack(s.want("t/a/" + big)...)
		half := strings.Repeat("y", 40_000)
		s.send("t/a/"+half, "t/b/"+half)
		ack(s.want("t/a/" + half + " t/b/" + half)...)
		synctest.Wait()
		if memory := s.writer.pool.memory; memory > 110_000 {
			s.Errorf("%d bytes are kept for later records", memory)
		}
		s.Drain(3)
	})
}

// Run wakes up on its own when many records are buffered, and otherwise waits for Flush.
func TestGathering(t *testing.T) {
	onStage(t, Options{RequestRecords: 1000}, sink.WriterConfig{}, func(s *stage) {
		synctest.Wait()
		for range flushRecords {
			synctest.Wait()
			if s.calls > 0 {
				s.Fatal("a record is sent before Flush")
			}
			s.seq++
			if err := s.writer.Send(s.Context(), &sink.Record{Seq: s.seq, Topic: "t", Key: []byte("a")}); err != nil {
				s.Fatal(err)
			}
		}
		_, requests := s.published()
		ack(requests...)
		s.Drain(flushRecords)
	})
}

// Thousands of lanes that wait for a retry leave nothing behind.
func TestManyLanes(t *testing.T) {
	const n = 10_000
	onStage(t, Options{WindowBytes: 64 << 20}, sink.WriterConfig{}, func(s *stage) {
		for i := range n {
			s.send(fmt.Sprintf("t/%d/x", i))
		}
		_, requests := s.published()
		for len(requests) < n {
			s.Fatalf("%d requests", len(requests))
		}
		for _, r := range requests {
			r.Done(0, errBusy)
		}
		for s.Acked() < n {
			bubble.Sleep(backoffBase)
			_, requests := s.published()
			slices.Reverse(requests)
			ack(requests...)
			synctest.Wait()
		}
		if !isEmpty(s.writer) {
			s.Error("the Writer keeps lanes")
		}
		s.Drain(n)
	})
}

// The first retry after a stale connection has no back-off, and its error is not shown. Further ones are like any other.
func TestStaleConnection(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		stale := fmt.Errorf("the server has closed it: %w", ErrStale)
		for n := range int64(2) {
			s.send("t/a/1", "t/a/2")
			s.want("t/a/1")[0].Done(0, stale)
			r := s.want("t/a/1")
			if st := s.base.Stat(); !r[0].Resent || !st.StalledSince.IsZero() {
				s.Errorf("resent: %t; %+v", r[0].Resent, st)
			}
			ack(r...)
			ack(s.want("t/a/2")...)
			synctest.Wait()
			if st := s.base.Stat(); st.Retries != n+1 || st.LastError != "" {
				s.Errorf("%+v", st)
			}
		}
		s.send("t/a/3")
		s.want("t/a/3")[0].Done(0, stale)
		s.want("t/a/3")[0].Done(0, stale)
		s.want("")
		bubble.Sleep(2 * backoffBase)
		ack(s.want("t/a/3")...)
		s.Drain(5)
		if st := s.base.Stat(); st.Retries != 4 || !strings.Contains(st.LastError, "the server has closed it") {
			s.Errorf("%+v", st)
		}
	})
}
