package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// recreateTopic deletes topic t and creates it again.
func (l *lab) recreateTopic(partitions int32) {
	l.Helper()
	if err := l.fake.DeleteTopic("t"); err != nil {
		l.Fatal(err)
	}
	if err := l.fake.CreateTopic("t", partitions, nil); err != nil {
		l.Fatal(err)
	}
}

// TestTopicCreatedAnewWithFewerPartitions: what waits for a partition that is gone goes to
// another one, before what came later for the same key.
func TestTopicCreatedAnewWithFewerPartitions(t *testing.T) {
	const keys, rounds = 100, 20
	inLab(t, 3, func(l *lab) {
		r := l.rig(Config{})
		round := func(n int) {
			for key := range keys {
				r.sendKeyed("t", fmt.Sprint("key-", key), fmt.Sprint(n))
			}
		}
		round(-1) // goes with the topic
		r.waitAcked(keys)
		stuck := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		for n := range rounds {
			round(n)
		}
		r.producer.Flush()
		time.Sleep(10 * time.Second)
		l.recreateTopic(4)
		stuck.Remove()
		r.waitAcked(keys * (rounds + 1))
		round(rounds)
		r.mustDrain()

		next := make(map[string]int)
		for _, rec := range l.readRecords("t", keys*(rounds+1)) {
			key, n := string(rec.Key), string(rec.Value)
			was, is := byMurmur2(rec.Key, 6), byMurmur2(rec.Key, 4)
			if was < 4 && n != fmt.Sprint(rounds) {
				is = was // there was no need to move it
			}
			if rec.Partition != is {
				l.Fatalf("record %s of %s is in partition %d, want %d", n, key, rec.Partition, is)
			}
			if was < 4 {
				continue // its last record may be in another partition, which is read when it is
			}
			if n != fmt.Sprint(next[key]) {
				l.Fatalf("record %s of %s, want %d", n, key, next[key])
			}
			next[key]++
		}
		if s := r.journal.String(); strings.Count(s, "topic was created anew") != 1 || !strings.Contains(s, "from=6 to=4") {
			l.Errorf("log: %s", s)
		}
		r.producer.mu.Lock()
		defer r.producer.mu.Unlock()
		if r.producer.memory != 0 || r.producer.inFlightRecords != 0 || len(r.producer.retrying) != 0 {
			l.Errorf("%d bytes of %d records, %d partitions in trouble", r.producer.memory, r.producer.inFlightRecords, len(r.producer.retrying))
		}
	}, kfake.SeedTopics(6, "t"))
}

// TestPartitionIsGone: a record for a given partition that the topic has no longer is not put
// anywhere else.
func TestPartitionIsGone(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 5, "x"))
		r.waitAcked(1)
		l.recreateTopic(4)
		r.send(recordFor("t", 0, "before"))
		gone := r.send(recordFor("t", 5, "gone"))
		r.producer.Flush()
		e, ok := errors.AsType[*sink.RecordError](r.waitRun())
		if !ok || e.Seq != gone || e.Partition != 5 || !strings.Contains(e.Error(), "has 4 partitions") {
			l.Errorf("Run: %v", r.waitRun())
		}
		if len(r.acked) != 2 {
			l.Errorf("%d records acknowledged, want what was sent before", len(r.acked))
		}
	}, kfake.SeedTopics(6, "t"))
}

// TestFewerPartitionsWithoutID: where the cluster gives no topic ids, a smaller number of
// partitions may be old news of a topic that has grown; it is not acted upon, and said so.
func TestFewerPartitionsWithoutID(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 5, "x"))
		r.waitAcked(1)
		l.recreateTopic(4)
		r.send(recordFor("t", 5, "waits"))
		r.send(recordFor("t", 0, "does not wait"))
		r.waitAcked(2)
		time.Sleep(time.Minute)
		if s := r.client.Stat(); !strings.Contains(s.StallReason, "UNKNOWN_TOPIC_OR_PARTITION") || s.InFlightRecords != 1 {
			l.Errorf("Stat: %+v", s)
		}
		if s := r.journal.String(); !strings.Contains(s, "topic does not take records") || !strings.Contains(s, "sink stalled") {
			l.Errorf("log: %s", s)
		}
	}, kfake.SeedTopics(6, "t"), oldBroker("v2.7"))
}
