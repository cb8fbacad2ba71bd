package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// TestEveryCode: a broker answers one batch once with each error code of the table. The test checks the outcome of
// that batch and of a later record.
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
	r.AwaitAcked(1)
	e := kerr.TypedErrorForCode(int16(row.code))
	if e.Code != int16(row.code) { // an unknown error code
		e = &kerr.Error{Code: int16(row.code), Message: "UNHEARD_OF"}
	}
	l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: e})
	r.send(recordFor("t", 0, "hit"))
	r.producer.Flush()

	switch row.class {
	case accepted:
		r.drain()
	case retriable, unknownTopic, accessDenied, corruptBatch, producerLost, superseded:
		r.AwaitAcked(2)
		r.send(recordFor("t", 0, "behind"))
		r.drain()
		if s := r.client.Stat(); s.Retries != 1 || (s.DuplicatesPossible == 1) != (row.class == producerLost || row.class == superseded) {
			l.Errorf("%d retries, %d renewals", s.Retries, s.DuplicatesPossible)
		}
		loud := strings.Contains(r.Journal.String(), "topic rejects records")
		if want := row.class == unknownTopic || row.class == accessDenied; loud != want {
			l.Errorf("logged loudly: %v, want %v", loud, want)
		}
	case invalidRecord:
		e := wantRecordError(l, r, 2)
		if e.Topic != "t" || e.Partition != 0 || e.Seq != 2 || string(e.Key) != "k" {
			l.Errorf("error is about %+v", e)
		}
	case fatal, unexpected:
		if err := r.Wait(); !errors.Is(err, sink.ErrFatal) || !strings.Contains(err.Error(), row.name) {
			l.Errorf("Run: %v", err)
		}
		if _, err := r.trySend(recordFor("t", 1, "late")); !errors.Is(err, sink.ErrFatal) {
			l.Errorf("Send: %v", err)
		}
		if r.Acked() != 1 || len(r.Failed()) != 0 {
			l.Errorf("outcomes: %v, %v", r.Acked(), r.Failed())
		}
	case unsent:
		l.Errorf("no code of a broker means that the request was not completed")
	}
	for _, err := range r.Failed() {
		if strings.Contains(err.Error(), "hit") {
			l.Errorf("the value is in %q", err)
		}
	}
}

// TestDeniedAccessIsRetriedSlowly: the client backs off when access is denied, since only an operator can fix that.
func TestDeniedAccessIsRetriedSlowly(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		bubble.Sleep(10 * time.Minute)
		if n := fault.Hits(); n < 60 || n > 300 {
			l.Errorf("asked %d times in 10 minutes, want about 120", n)
		}
		fix := "kafka-acls.sh --bootstrap-server " + r.client.cfg.Brokers[0] + " --add --allow-principal 'User:<the relay's>' --operation Describe --operation Write --topic t"
		if s := r.client.Stat(); s.StallMissing != "" || !strings.Contains(s.StallAdvice, fix) {
			l.Errorf("the stall does not say how to fix it: %+v", s)
		}
		if s := r.Journal.String(); !strings.Contains(s, fix) {
			l.Errorf("the log does not say how to fix it:\n%s", s)
		}
		fault.Remove()
		r.drain()
	}, kfake.SeedTopics(2, "t"))
}

// TestErrorsNameTheKeysToCheck: if the operator can fix an error in the configuration, its advice names the
// configuration key.
func TestErrorsNameTheKeysToCheck(t *testing.T) {
	for err, key := range map[error]string{errUnreachable: "sink.kafka.brokers", errAccess: "sink.kafka.sasl", errLogin: "sink.kafka.tls"} {
		advised, ok := errors.AsType[sink.Advised](fmt.Errorf("contact Kafka: %w", err))
		if !ok || !strings.Contains(advised.Advice(), key) {
			t.Errorf("%v: the advice does not name %s", err, key)
		}
	}
}
