package lane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// An advisedError is a missing destination, and how to create it.
type advisedError struct{}

func (advisedError) Error() string  { return "nothing there" }
func (advisedError) Unwrap() error  { return sink.ErrMissing }
func (advisedError) Advice() string { return "Create it." }

func sleepABit() { bubble.Sleep(backoffMax) }

// All lanes of a missing destination wait for one that asks for it, and other destinations continue.
func TestMissing(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/b/2", "t/c/3", "u/a/4")
		start := time.Now()
		r := s.want("t/a/1 t/b/2 t/c/3 u/a/4")
		for _, r := range r[:3] {
			r.Done(0, advisedError{})
		}
		ack(r[3])
		synctest.Wait()
		s.send("t/d/5", "u/b/6", "t/a/7")
		ack(s.want("u/b/6")...)
		for range 20 {
			sleepABit()
			s.want("t/a/1")[0].Done(0, advisedError{})
		}
		synctest.Wait()
		if st := s.base.Stat(); !st.StalledSince.Equal(start) || st.StallMissing != "t" || st.StallAdvice != "Create it." || st.StallReason != "destination t: nothing there" {
			s.Errorf("%+v", st)
		}
		sleepABit()
		ack(s.want("t/a/1")...)
		ack(s.want("t/b/2 t/c/3 t/d/5 t/a/7")...)
		s.Drain(7)
		if log := s.Journal.String(); strings.Count(log, "destination rejects records") != 1 || !strings.Contains(log, "Create it.") || strings.Count(log, "destination accepts records") != 1 {
			s.Error(log)
		}
	})
}

// Records for a destination that was never there are rejected in the order of Send when GiveUp says so.
func TestGiveUp(t *testing.T) {
	var asked []sink.Missing
	cfg := sink.WriterConfig{Substitute: bury, GiveUp: func(m sink.Missing) bool {
		asked = append(asked, m)
		return len(asked) == 2
	}}
	onStage(t, Options{WindowRecords: 8}, cfg, func(s *stage) {
		asked = nil
		s.send("t/a/1", "t/b/2", "t/a/3", "u/a/4")
		start := time.Now()
		r := s.want("t/a/1 t/b/2 u/a/4")
		r[0].Done(0, sink.ErrMissing)
		r[1].Done(0, sink.ErrMissing)
		ack(r[2])
		for range 3 {
			sleepABit()
			s.want("t/a/1")[0].Done(0, fmt.Errorf("%w: t", sink.ErrMissing))
		}
		r = s.want("dead/a/1! dead/b/2!")
		ack(r...)
		ack(s.want("dead/a/3!")...)
		if len(asked) != 2 || asked[0].Destination != "t" || !asked[0].Since.Equal(start) || asked[0].WindowShare != 3.0/8 {
			s.Errorf("asked %+v", asked)
		}
		synctest.Wait()
		if _, ok := s.base.Stat().Topics["t"]; ok || !isEmpty(s.writer) {
			s.Error("the Writer keeps the destination")
		}
		s.Drain(4)
	})
}

// GiveUp is not asked about a destination that was writable before, also by another Writer of the Sink.
func TestGiveUpAfterWriting(t *testing.T) {
	cfg := sink.WriterConfig{GiveUp: func(sink.Missing) bool {
		t.Error("asked")
		return true
	}}
	onStage(t, Options{}, cfg, func(s *stage) {
		s.base.written("t")
		s.send("t/a/1")
		for range 10 {
			sleepABit()
			s.want("t/a/1")[0].Done(0, sink.ErrMissing)
		}
		sleepABit()
		ack(s.want("t/a/1")...)
		s.Drain(1)
	})
}

// Without a substitute, the first of the records for a missing destination ends the Writer.
func TestGiveUpWithoutSubstitute(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{GiveUp: func(sink.Missing) bool { return true }}, func(s *stage) {
		s.send("u/a/1", "t/b/2", "t/a/3", "t/b/4", "u/a/5")
		r := s.want("u/a/1 t/b/2 t/a/3")
		r[2].Done(0, sink.ErrAccess)
		r[1].Done(0, sink.ErrAccess)
		for range 2 {
			bubble.Sleep(backoffDenied)
			s.want("t/a/3")[0].Done(0, sink.ErrAccess)
		}
		synctest.Wait()
		if s.Ended() {
			s.Fatal("an earlier record has no outcome")
		}
		ack(r[0])
		rejected, ok := errors.AsType[*sink.RecordError](s.Wait())
		if !ok || rejected.Seq != 2 || !errors.Is(rejected, sink.ErrAccess) || s.Acked() != 1 || len(s.Failed()) != 1 {
			s.Errorf("Run: %v; acknowledged are %d, failed are %v", rejected, s.Acked(), s.Failed())
		}
	})
}

// While records choose missing destinations in any number, one line a second is logged, and nothing stays.
func TestManyMissing(t *testing.T) {
	const n = 200
	cfg := sink.WriterConfig{Substitute: bury, GiveUp: func(sink.Missing) bool { return true }}
	onStage(t, Options{}, cfg, func(s *stage) {
		s.base.written("dead")
		for i := range n {
			s.send(fmt.Sprintf("missing%d/a/x", i))
		}
		for s.Acked() < n {
			_, requests := s.published()
			for _, r := range requests {
				if r.Records[0].Topic == "dead" {
					ack(r)
				} else {
					r.Done(0, sink.ErrMissing)
				}
			}
			bubble.Sleep(backoffBase)
		}
		synctest.Wait()
		if !isEmpty(s.writer) || len(s.writer.destinations) != 1 || len(s.base.Stat().Topics) != 1 {
			s.Errorf("%d destinations are left", len(s.writer.destinations))
		}
		s.Drain(n)
		if lines := strings.Count(s.Journal.String(), "rejects records"); lines > 3 {
			s.Errorf("%d lines", lines)
		}
	})
}
