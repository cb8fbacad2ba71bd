package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// TestEveryCode has a broker answer one batch with each code of the table once, and looks at
// what becomes of it and of a record behind it.
func TestEveryCode(t *testing.T) {
	for _, row := range append(allCodes(), lookup(32000)) {
		if row.code == sarama.ErrNoError {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) { testCode(l, row) }, kfake.SeedTopics(2, "t"))
		})
	}
}

func testCode(l *lab, row code) {
	r := l.rig(Config{})
	r.send(recordFor("t", 0, "before"))
	r.waitAcked(1)
	e := kerr.TypedErrorForCode(int16(row.code))
	if e.Code != int16(row.code) { // one that nobody knows
		e = &kerr.Error{Code: int16(row.code), Message: "UNHEARD_OF"}
	}
	l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: e})
	r.send(recordFor("t", 0, "hit"))
	r.producer.Flush()

	switch row.class {
	case accepted:
		r.mustDrain()
	case retriable, unknownTopic, accessDenied, corruptBatch, producerLost:
		r.waitAcked(2)
		r.send(recordFor("t", 0, "behind"))
		r.mustDrain()
		if s := r.client.Stat(); s.Retries != 1 || (s.DuplicatesPossible == 1) != (row.class == producerLost) {
			l.Errorf("%d retries, %d renewals", s.Retries, s.DuplicatesPossible)
		}
		loud := strings.Contains(r.journal.String(), "topic does not take records")
		if want := row.class == unknownTopic || row.class == accessDenied; loud != want {
			l.Errorf("logged loudly: %v, want %v", loud, want)
		}
	case invalidRecord:
		e := wantRecordError(l, r, 2)
		if e.Topic != "t" || e.Partition != 0 || e.Seq != 2 || string(e.Key) != "k" {
			l.Errorf("error is about %+v", e)
		}
	case fenced, fatal:
		kind := map[class]error{fenced: sink.ErrFenced, fatal: sink.ErrFatal}[row.class]
		if err := r.waitRun(); !errors.Is(err, kind) || !strings.Contains(err.Error(), row.name) {
			l.Errorf("Run: %v, want %v", err, kind)
		}
		if _, err := r.trySend(recordFor("t", 1, "late")); !errors.Is(err, kind) {
			l.Errorf("Send: %v, want %v", err, kind)
		}
		if len(r.acked) != 1 || len(r.failures) != 0 {
			l.Errorf("outcomes: %v, %v", r.acked, r.failures)
		}
	}
	for _, err := range r.failures {
		if strings.Contains(err.Error(), "hit") {
			l.Errorf("the value is in %q", err)
		}
	}
}

// wantRecordError waits for Run to end with a sink.RecordError for record seq, reported once.
func wantRecordError(tb testing.TB, r *rig, seq uint64) *sink.RecordError {
	tb.Helper()
	err := r.waitRun()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != seq {
		tb.Fatalf("Run: %v, want a sink.RecordError for record %d", err, seq)
	}
	if _, err := r.trySend(recordFor("t", 1, "late")); !errors.Is(err, e) {
		tb.Errorf("Send: %v, want %v", err, e)
	}
	if len(r.failures) != 1 || !errors.Is(r.failures[0], e) {
		tb.Errorf("failures reported: %v", r.failures)
	}
	return e
}

// TestCorruptForEver has a broker call one of three records corrupt whenever it sees it.
func TestCorruptForEver(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "first"))
		r.waitAcked(1)
		seen := 0
		l.fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.CorruptMessage, Count: -1,
			When: func(req kmsg.Request) bool {
				bad := strings.Contains(string(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records), "poison")
				if bad {
					seen++
				}
				return bad
			},
		})
		r.send(recordFor("t", 0, "good"))
		r.send(recordFor("t", 0, "poison"))
		r.send(recordFor("t", 0, "behind"))
		r.producer.Flush()
		e := wantRecordError(l, r, 3)
		if c, ok := errors.AsType[*codeError](e); !ok || c.name != "CORRUPT_MESSAGE" {
			l.Errorf("reason: %v", e.Reason)
		}
		if len(r.acked) != 2 {
			l.Errorf("acknowledged: %v, want 1 and 2", r.acked)
		}
		if seen < 2*corruptLimit {
			l.Errorf("blamed after %d answers", seen)
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestRefusedIsSlow: what a person has to heal is not hammered.
func TestRefusedIsSlow(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		time.Sleep(10 * time.Minute)
		if n := fault.Hits(); n < 60 || n > 300 {
			l.Errorf("asked %d times in 10 minutes, want about 120", n)
		}
		fault.Remove()
		r.mustDrain()
	}, kfake.SeedTopics(2, "t"))
}
