package kafka

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// givingUp returns a configuration that sends rejected records to topic dead. giveUp decides when to reject records
// for a missing topic.
func givingUp(giveUp func(sink.Missing) bool) sink.WriterConfig {
	return sink.WriterConfig{
		GiveUp: giveUp,
		Substitute: func(r *sink.Record, rejected *sink.RecordError) *sink.Record {
			if r.Topic == "dead" {
				return nil
			}
			r.Topic, r.Partition = "dead", 0
			r.Headers = []sink.Header{{Key: "reason", Value: []byte(rejected.Error())}}
			return r
		},
	}
}

// TestGivenUpTopic: records for a missing topic wait until the limit. The producer then rejects them in order. Once
// the topic exists, it receives later records.
func TestGivenUpTopic(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		r := l.rigWith(Config{}, givingUp(func(m sink.Missing) bool { return bubble.Since(m.Since) >= time.Minute }))
		r.send(recordFor("late", 0, "a"))
		r.send(recordFor("late", 0, "b"))
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		r.AwaitAcked(1)
		bubble.Sleep(50 * time.Second)
		if r.Acked() != 1 {
			l.Error("the records did not wait")
		}
		if advice := r.client.Stat().StallAdvice; !strings.Contains(advice, "--create --topic late ") || strings.Contains(advice, "restart") {
			l.Errorf("advice of which the restart rejects the records: %q", advice)
		}
		bubble.Sleep(15 * time.Second)
		r.AwaitAcked(3)
		dead := l.readRecords("dead", 2)
		if got := fmt.Sprintf("%s %s", dead[0].Value, dead[1].Value); got != "a b" || !strings.Contains(string(dead[0].Headers[0].Value), "UNKNOWN_TOPIC_OR_PARTITION") {
			l.Errorf("dead letters: %s, %s", got, dead[0].Headers[0].Value)
		}
		if _, err := l.admin().CreateTopic(l.Context(), 1, 1, nil, "late"); err != nil {
			l.Fatal(err)
		}
		r.send(recordFor("late", 0, "c"))
		r.drain()
		if got := l.readRecords("late", 1); string(got[0].Value) != "c" {
			l.Errorf("delivered: %s", got[0].Value)
		}
	}, kfake.SeedTopics(1, "t", "dead"))
}

// TestManyMissingTopics: records for ever more missing topics do not delay other records. They do not stay in
// memory, and do not flood the log.
func TestManyMissingTopics(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rigWith(Config{WindowBytes: 256 << 10}, givingUp(func(m sink.Missing) bool { return m.WindowShare > 0.25 }))
		const n = 2000
		start := time.Now()
		for i := range n {
			r.send(recordFor(fmt.Sprint("nosuch-", i), 0, strings.Repeat("x", 1000)))
			r.send(recordFor("t", 0, "honest"))
		}
		r.producer.Flush()
		r.Await("the honest ones", func() bool { return r.client.Stat().Topics["t"].Records == n })
		if took := bubble.Since(start); took > 10*time.Second {
			l.Errorf("%d honest records took %s", n, took)
		}
		r.client.cluster.mu.Lock()
		known := len(r.client.cluster.topics)
		r.client.cluster.mu.Unlock()
		if known > n/4 {
			l.Errorf("%d topics are known", known)
		}
		if got := len(r.client.Stat().Topics); got != 2 {
			l.Errorf("%d topics have metrics", got)
		}
		if got := strings.Count(r.Journal.String(), "topic rejects records"); got > 10 {
			l.Errorf("%d lines are logged", got)
		}
	}, kfake.SeedTopics(1, "t", "dead"))
}

// TestWritableTopicIsNotGivenUp: if a topic accepted records before it was deleted, the producer waits for it
// instead of rejecting records.
func TestWritableTopicIsNotGivenUp(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rigWith(Config{}, givingUp(func(sink.Missing) bool { return true }))
		r.send(recordFor("t", 0, "x"))
		r.producer.Flush()
		r.AwaitAcked(1)
		if _, err := l.admin().DeleteTopic(l.Context(), "t"); err != nil {
			l.Fatal(err)
		}
		r.send(recordFor("t", 0, "y"))
		r.producer.Flush()
		bubble.Sleep(time.Minute)
		if r.Acked() != 1 {
			l.Error("the record did not wait")
		}
		if s := r.client.Stat(); s.StallMissing != "t" || !strings.Contains(s.StallAdvice, "--create --topic t ") {
			l.Errorf("the stall does not say how to fix it: %+v", s)
		}
		if _, err := l.admin().CreateTopic(l.Context(), 1, 1, nil, "t"); err != nil {
			l.Fatal(err)
		}
		r.drain()
	}, kfake.SeedTopics(1, "t", "dead"))
}

// TestGivenUpTopicWithoutWrite: a topic that the user may describe but not write to counts as missing. Its records
// go to the dead-letter topic.
func TestGivenUpTopicWithoutWrite(t *testing.T) {
	right := func(topic string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "seen", "t", "dead"),
		kfake.User("PLAIN", "writer", password, right("t", kmsg.ACLOperationWrite), right("dead", kmsg.ACLOperationWrite), right("seen", kmsg.ACLOperationDescribe)))
	var given atomic.Pointer[sink.Missing]
	r := newRigWith(t, Config{Brokers: k.Addrs, SASL: login("PLAIN", "writer", password)},
		givingUp(func(m sink.Missing) bool { given.Store(&m); return true }))
	r.send(recordFor("seen", 0, "a"))
	r.send(recordFor("t", 0, "b"))
	r.drain()
	if err := r.client.CheckDestinations(sinktest.Context(t), "seen"); !errors.Is(err, sink.ErrAccess) {
		t.Errorf("CheckDestinations: %v", err)
	}
	if m := given.Load(); m == nil || m.Destination != "seen" {
		t.Errorf("given up: %+v", m)
	}
	if got := r.client.Stat().Topics; got["dead"].Records != 1 || got["t"].Records != 1 {
		t.Errorf("delivered: %+v", got)
	}
}
