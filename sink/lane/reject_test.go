package lane

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

var errBad = &sink.RecordError{Code: "BAD", Reason: errors.New("bad")}

// bury is a Substitute that sends a record to the destination dead, with a mark in its value.
func bury(r *sink.Record, _ *sink.RecordError) *sink.Record {
	r.Topic, r.Value = "dead", append(r.Value, '!')
	return r
}

// Of a request with several records, those before the rejected one are acknowledged, and those behind it are sent again.
func TestRejectedInTheMiddle(t *testing.T) {
	onStage(t, Options{RequestRecords: 4}, sink.WriterConfig{Substitute: bury}, func(s *stage) {
		s.send("t/a/1", "t/a/2", "t/a/3", "t/a/4", "t/a/5")
		s.want("t/a/1+t/a/2+t/a/3+t/a/4")[0].Done(1, errBad)
		r := s.want("dead/a/2! t/a/3+t/a/4+t/a/5")
		if s.Acked() != 1 || r[1].Resent {
			s.Errorf("%d records are acknowledged; resent: %v", s.Acked(), r[1].Resent)
		}
		ack(r...)
		s.Drain(5)
	})
}

// Without a substitute, the records before the rejected one are delivered, and those behind it that were not sent are not.
func TestRejectedWithoutSubstitute(t *testing.T) {
	onStage(t, Options{RequestRecords: 2}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/1", "t/b/2", "t/b/3", "t/b/4", "t/c/5", "t/a/6")
		r := s.want("t/a/1+t/a/6 t/b/2+t/b/3 t/c/5")
		r[1].Done(1, errBad)
		s.want("")
		if err := s.writer.Send(s.Context(), &sink.Record{Seq: 7, Topic: "t"}); !errors.Is(err, errBad.Reason) {
			s.Errorf("Send: %v", err)
		}
		r[0].Done(0, errBad) // an earlier one is rejected too
		r[2].Done(0, errBusy)
		synctest.Wait()
		if s.Ended() {
			s.Fatal("Run has ended with a request that may be stored")
		}
		for !s.Ended() { // the later record was sent, so it is sent until it has an outcome
			_, requests := s.published()
			ack(requests...)
			sleepABit()
		}
		err := s.Wait()
		rejected, ok := errors.AsType[*sink.RecordError](err)
		if !ok || rejected.Seq != 1 || rejected.Topic != "t" || string(rejected.Key) != "a" || rejected.Size != 2 || rejected.Code != "BAD" {
			s.Errorf("Run: %+v", err)
		}
		if failed := s.Failed(); len(failed) != 2 || failed[1] == nil || failed[3] == nil || s.Acked() != 2 || !s.IsAcked(2) || !s.IsAcked(5) {
			s.Errorf("failed are %v, acknowledged are %d", failed, s.Acked())
		}
	})
}

// A substitute may be rejected as well. One for the same lane takes the place of the rejected record.
func TestSubstituteChain(t *testing.T) {
	substitute := func(r *sink.Record, _ *sink.RecordError) *sink.Record {
		r.Value = append(r.Value, '!')
		switch {
		case len(r.Value) > 3:
			return nil
		case len(r.Value) > 2:
			return &sink.Record{Topic: "dead", Key: r.Key, Value: r.Value}
		}
		return r
	}
	onStage(t, Options{}, sink.WriterConfig{Substitute: substitute}, func(s *stage) {
		s.send("t/a/1", "t/a/2")
		s.want("t/a/1")[0].Done(0, errBad)
		s.want("t/a/1!")[0].Done(0, errBad)
		r := s.want("dead/a/1!! t/a/2")
		if r[0].Records[0].Seq != 1 {
			s.Errorf("the substitute is record %d", r[0].Records[0].Seq)
		}
		ack(r[1])
		r[0].Done(0, errBad)
		rejected, ok := errors.AsType[*sink.RecordError](s.Wait())
		if !ok || rejected.Seq != 1 || rejected.Topic != "dead" || !s.IsAcked(2) || s.Acked() != 1 {
			s.Errorf("Run: %+v", rejected)
		}
	})
}

// Prepare rejects records without a request, each in its turn.
func TestPrepare(t *testing.T) {
	prepare := func(r *sink.Record) error {
		switch {
		case strings.Contains(string(r.Value), "!"):
			return nil
		case strings.Contains(string(r.Value), "bad"):
			return errBad
		case strings.Contains(string(r.Value), "odd"):
			return errors.New("odd")
		}
		return nil
	}
	onStage(t, Options{RequestRecords: 5, Prepare: prepare}, sink.WriterConfig{Substitute: bury}, func(s *stage) {
		s.send("t/a/1", "t/a/bad2", "t/a/odd3", "t/a/4", "t/b/bad5", "t/c/6")
		r := s.want("t/a/1 t/c/6 dead/b/bad5!")
		ack(r...)
		r = s.want("t/a/4 dead/a/bad2!+dead/a/odd3!")
		ack(r...)
		s.Drain(6)
	})
	onStage(t, Options{Prepare: prepare}, sink.WriterConfig{}, func(s *stage) {
		s.send("t/a/bad1", "t/b/2")
		s.want("")
		if err := s.Wait(); !errors.Is(err, errBad.Reason) || s.Failed()[1] == nil || s.Acked() != 0 {
			s.Errorf("Run: %v, failed are %v", err, s.Failed())
		}
	})
}

// After a rejection, Divert is asked for the later records of the destination in the order of Send, and none overtakes
// the substitute.
func TestDivert(t *testing.T) {
	parked := false
	var asked []string
	cfg := sink.WriterConfig{
		Substitute: func(r *sink.Record, rejected *sink.RecordError) *sink.Record {
			parked = true
			return bury(r, rejected)
		},
		Divert: func(r *sink.Record) *sink.Record {
			if parked && r.Topic == "t" {
				asked = append(asked, string(r.Value))
			}
			if !parked || r.Topic != "t" || string(r.Key) != "a" {
				return nil
			}
			return &sink.Record{Topic: "dead", Key: r.Key, Value: append(r.Value, '>')}
		},
	}
	onStage(t, Options{RequestRecords: 2}, cfg, func(s *stage) {
		s.send("t/b/1", "t/b/2", "t/b/3", "t/a/4", "t/a/5", "t/a/6", "t/b/7", "u/a/8")
		r := s.want("t/b/1+t/b/2 t/a/4+t/a/5 u/a/8")
		r[1].Done(0, errBad)
		dead := s.want("dead/a/4!+dead/a/5>")
		if got := strings.Join(asked, " "); got != "5 6 7" {
			s.Errorf("asked for %s", got)
		}
		s.send("t/a/9")
		ack(dead...)
		ack(s.want("dead/a/6>+dead/a/9>")...)
		ack(r[0], r[2])
		ack(s.want("t/b/3+t/b/7")...)
		s.Drain(9)
	})
}

// Records for a destination whose name the broker cannot have are rejected and never sent.
func TestIllegalDestination(t *testing.T) {
	illegal := func(name string) string {
		if name == "$x" {
			return "begins with $"
		}
		return ""
	}
	onStage(t, Options{Illegal: illegal}, sink.WriterConfig{Substitute: bury}, func(s *stage) {
		s.send("$x/a/1", "t/a/2", "$x/a/3")
		ack(s.want("t/a/2 dead/a/1!")...)
		ack(s.want("dead/a/3!")...)
		s.Drain(3)
	})
}
