package kafka

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// TestLimitIsExact: the producer sends the largest record that a topic accepts, and rejects a record with one byte
// more.
func TestLimitIsExact(t *testing.T) {
	k := kafkatest.Broker(t)
	for _, limit := range []int{2000, 20_000, 100_000, 3_000_000} {
		topic := k.Topic(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
		testLimit(t, k, topic, limit)
	}
}

// TestConfiguredLimitOverridesTheTopics: the producer uses the configured limit instead of the topic's, even if the
// broker then rejects the record.
func TestConfiguredLimitOverridesTheTopics(t *testing.T) {
	k := kafkatest.Broker(t)
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "5000"})
	r := newRig(t, Config{Brokers: k.Addrs, MaxMessageBytes: 10_000})
	r.send(recordFor(topic, 0, "before"))
	r.send(recordFor(topic, 0, strings.Repeat("x", 6000)))
	err := r.closeSend()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 || !e.TooLarge || e.Limit != 0 || !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("Run: %v", err)
	}
	if got := values(k.ReadAll(t, topic), 0); !slices.Equal(got, []string{"before"}) {
		t.Errorf("log holds %d records", len(got))
	}
}

// TestFullBatchesFitTheTopic: the producer fills batches with incompressible records up to the limit. The broker
// accepts them, with any compression.
func TestFullBatchesFitTheTopic(t *testing.T) {
	k := kafkatest.Broker(t)
	noise := benchNoise(1 << 20)
	compressions := []string{"none", "lz4"}
	if need.Full() {
		compressions = append(compressions, "gzip", "snappy", "zstd")
	}
	for _, compression := range compressions {
		topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "65536"})
		r := newRig(t, Config{Brokers: k.Addrs, Compression: compression})
		r.send(recordFor(topic, 0, "warm")) // a new topic may not have a leader yet
		r.AwaitAcked(1)
		before := r.client.Stat().Retries
		for i := range 2000 {
			r.send(recordFor(topic, 0, string(noise[i*500:i*500+500])))
		}
		r.drain()
		if s := r.client.Stat(); s.Retries != before {
			t.Errorf("%s: %d batches were rejected: %s", compression, s.Retries-before, s.LastError)
		}
	}
}

func testLimit(t *testing.T, k *kafkatest.Cluster, topic string, limit int) {
	t.Helper()
	rec := sink.Record{Topic: topic, Partition: 0, Key: []byte("key"), Headers: []sink.Header{{Key: "id", Value: []byte("7")}}}
	rec.Value = make([]byte, limit-200)
	for sizeAlone(&rec) < limit {
		rec.Value = append(rec.Value, 0)
	}
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "before"))
	r.send(rec)
	r.AwaitAcked(2)
	r.send(recordFor(topic, 0, "between"))
	rec.Value = append(rec.Value, 0)
	r.send(rec)
	r.producer.Flush()
	err := r.Wait()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != 4 || e.Size != limit+1 || e.Limit != limit {
		t.Fatalf("Run: %v, want a sink.RecordError of size %d", err, limit+1)
	}
	if got := len(k.ReadAll(t, topic)); got != 3 {
		t.Errorf("%d records in the log, want 3", got)
	}
}

// TestRaisedLimitIsNoticed: a running producer detects that a topic's limit was raised when a record exceeds the
// old limit.
func TestRaisedLimitIsNoticed(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "10000"})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "small"))
	r.AwaitAcked(1)
	_, err := k.Admin(t).AlterTopicConfigs(sinktest.Context(t), alterLimit("20000"), topic)
	if err != nil {
		t.Fatal(err)
	}
	r.send(recordFor(topic, 0, strings.Repeat("x", 15_000)))
	r.send(recordFor(topic, 0, "behind"))
	r.drain()
	if got := values(k.ReadAll(t, topic), 0); len(got) != 3 || got[2] != "behind" {
		t.Errorf("%d records in the log", len(got))
	}
}

// TestLoweredLimitLosesNoRecord: if a topic's limit is lowered, the broker rejects a batch, the producer splits it,
// and no record is lost.
func TestLoweredLimitLosesNoRecord(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "0"))
	r.AwaitAcked(1)
	if _, err := k.Admin(t).AlterTopicConfigs(sinktest.Context(t), alterLimit("3000"), topic); err != nil {
		t.Fatal(err)
	}
	want := []string{"0"}
	for i := 1; i < 20_000; i++ {
		want = append(want, fmt.Sprint(i))
		r.send(recordFor(topic, 0, want[i]))
	}
	r.drain()
	if n := r.client.Stat().Retries; n > 300 {
		t.Errorf("%d batches were rejected: the producer did not detect the new limit", n)
	}
	if diff := cmp.Diff(want, values(k.ReadAll(t, topic), 0)); diff != "" {
		t.Error(diff)
	}
}

// TestRejectionsAreInOrder: after the limit of a topic was lowered, the broker rejects a record in flight, and the producer itself
// one behind it. The substitutes and the records that are diverted are in order.
func TestRejectionsAreInOrder(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		rejected := false
		move := func(rec *sink.Record) *sink.Record {
			return &sink.Record{Topic: "dead", Partition: sink.AnyPartition, Key: rec.Key, Value: rec.Value[:1]}
		}
		r := l.rigWith(Config{}, sink.WriterConfig{
			Substitute: func(rec *sink.Record, _ *sink.RecordError) *sink.Record {
				rejected = true
				return move(rec)
			},
			Divert: func(rec *sink.Record) *sink.Record {
				if !rejected || rec.Topic == "dead" {
					return nil
				}
				return move(rec)
			},
		})
		r.sendKeyed("dead", "k", "0")
		r.sendKeyed("t", "k", "0")
		r.AwaitAcked(2)
		if _, err := l.admin().AlterTopicConfigs(l.Context(), alterLimit("3000"), "t"); err != nil {
			l.Fatal(err)
		}
		release := holdProduce(l.cluster)
		r.sendKeyed("t", "k", "1"+strings.Repeat("x", 10_000))
		r.sendKeyed("t", "k", "2")
		bubble.Sleep(time.Second) // the batch is in flight
		r.sendKeyed("t", "k", "3"+strings.Repeat("x", 2_000_000))
		r.sendKeyed("t", "k", "4")
		bubble.Sleep(time.Second) // the new limit is known
		release()
		r.drain()
		if got := values(l.readRecords("dead", 5), 0); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
			t.Errorf("diverted are %q", got)
		}
	}, kfake.SeedTopics(1, "t", "dead"))
}

// TestCompressedRecordOverTheLimitIsSent: the producer sends a record above the limit in a batch of its own if
// compression may bring it below the limit.
func TestCompressedRecordOverTheLimitIsSent(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "10000"})
	r := newRig(t, Config{Brokers: k.Addrs, Compression: "zstd"})
	r.send(recordFor(topic, 0, "before"))
	r.send(recordFor(topic, 0, strings.Repeat("x", 100_000)))
	r.send(recordFor(topic, 0, "behind"))
	r.drain()
	if got := values(k.ReadAll(t, topic), 0); len(got) != 3 || len(got[1]) != 100_000 {
		t.Errorf("%d records in the log", len(got))
	}
}

// TestUnknownLimitIsLeftToTheBroker: if the user may not describe the topic's configuration, the producer sends
// records of any size and the broker checks the limit.
func TestUnknownLimitIsLeftToTheBroker(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "3000000"})
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, strings.Repeat("x", 2_000_000)))
	r.AwaitAcked(1)
	r.send(recordFor(topic, 0, strings.Repeat("x", 4_000_000)))
	r.producer.Flush()
	err := r.Wait()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 || !e.TooLarge || !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("Run: %v", err)
	}
}

// TestSizeIsTheLargestRecord: a topic accepts a record if its limit is sizeAlone, and rejects it if its limit is one
// byte lower.
func TestSizeIsTheLargestRecord(t *testing.T) {
	r := &sink.Record{Topic: "t", Partition: sink.AnyPartition, Key: []byte("key"), Value: make([]byte, 1000), Headers: []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "null", Value: nil}}}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	for limit, taken := range map[int]bool{sizeAlone(r): true, sizeAlone(r) - 1: false} {
		rig := newRig(t, Config{Brokers: k.Addrs, MaxMessageBytes: limit})
		rig.send(*r)
		if err := rig.closeSend(); (err == nil) != taken {
			t.Errorf("limit %d, size %d: %v", limit, sizeAlone(r), err)
		}
	}
}

// TestLargeRecordsMemoryIsGivenBack: after a record of 32 MiB and some small ones, the sink uses no more memory
// than before, with any compression.
func TestLargeRecordsMemoryIsGivenBack(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.BlackholeProduce(), kfake.SeedTopics(1, "t"))
	if _, err := k.Admin(t).AlterTopicConfigs(t.Context(), alterLimit("67108864"), "t"); err != nil {
		t.Fatal(err)
	}
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	compressions := []string{"none", "lz4"}
	if need.Full() {
		compressions = append(compressions, "gzip", "snappy", "zstd")
	}
	for _, compression := range compressions {
		r := newRig(t, Config{Brokers: k.Addrs, Compression: compression})
		ordinary := func() {
			for range 5 {
				r.send(recordFor("t", 0, "ordinary"))
				r.producer.Flush()
				r.AwaitAcked(int(r.seq))
			}
		}
		ordinary()
		before := heap()
		r.send(recordFor("t", 0, string(benchNoise(32<<20))))
		r.producer.Flush()
		r.AwaitAcked(int(r.seq))
		ordinary()
		r.Await("the memory to be given back", func() bool { return heap()-before < 8<<20 })
		r.drain()
	}
}
