package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// rejectPoison has the cluster answer err for every batch that contains "poison".
func rejectPoison(c *kfake.Cluster, err *kerr.Error) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1, Partitions: []int32{0},
		When: func(req kmsg.Request) bool {
			for _, topic := range req.(*kmsg.ProduceRequest).Topics {
				for _, p := range topic.Partitions {
					if p.Partition == 0 && strings.Contains(string(p.Records), "poison") {
						return true
					}
				}
			}
			return false
		},
	})
}

// TestPoison: one record of a large batch is refused. What was sent before it, on any
// partition, is delivered; nothing that was sent after it is in its partition.
func TestPoison(t *testing.T) {
	const n, bad = 900, 450
	for _, code := range []*kerr.Error{kerr.InvalidRecord, kerr.MessageTooLarge} {
		t.Run(code.Message, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
			release := holdProduce(k.Control)
			rejectPoison(k.Control, code)
			r := newRig(t, Config{Brokers: k.Addrs})
			var want [3][]string
			for i := range n {
				rec := recordFor("t", int32(i%3), fmt.Sprint(i))
				rec.Headers = []sink.Header{{Key: "id", Value: fmt.Append(nil, "id-", i)}, {Key: "other", Value: nil}}
				if i == bad {
					rec.Value = []byte("poison")
				} else if i < bad {
					want[i%3] = append(want[i%3], string(rec.Value))
				}
				r.send(rec)
			}
			release()
			e := wantRecordError(t, r, bad+1)
			if diff := cmp.Diff([]sink.Header{{Key: "id", Value: fmt.Append(nil, "id-", bad)}, {Key: "other", Value: nil}}, e.Headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if strings.Contains(e.Error(), "id-") || strings.Contains(e.Error(), "poison") {
				t.Errorf("content in %q", e)
			}
			log := k.ReadAll(t, "t")
			for p, want := range want {
				got := values(log, int32(p))
				if p == 0 && !slices.Equal(got, want) {
					t.Errorf("partition 0 holds %d records, want the %d before the refused one", len(got), len(want))
				}
				if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
					t.Errorf("partition %d lacks what was sent before the refused record: %d of %d", p, len(got), len(want))
				}
			}
			if len(r.acked) != len(log) {
				t.Errorf("%d records acknowledged, %d in the log", len(r.acked), len(log))
			}
		})
	}
}

// TestRejectedWithNothingInFlight: a record that is too large is the first of those that wait for
// their topic, and nothing else has no outcome. Run ends nevertheless, without CloseSend.
func TestRejectedWithNothingInFlight(t *testing.T) {
	k := kafkatest.Fake(t)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("late", 0, strings.Repeat("x", 2000)))
	r.send(recordFor("late", 0, "behind"))
	k.CreateTopic(t, "late", 2, map[string]string{"max.message.bytes": "1000"})
	wantRecordError(t, r, 1)
}

// TestTwoPoisons: the earlier of two refused records counts, and neither is acknowledged.
func TestTwoPoisons(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 1, "warm"))
		r.waitAcked(1)
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: 3},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
		r.send(recordFor("t", 0, "early"))
		r.send(recordFor("t", 1, "late"))
		r.producer.Flush()
		err := r.waitRun()
		if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 {
			l.Errorf("Run: %v, want the error of record 2", err)
		}
		if len(r.acked) != 1 || len(r.failures) == 0 {
			l.Errorf("acknowledged: %v, failures: %v", r.acked, r.failures)
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestRecordErrorsAreUsed: the broker names the record (KIP-467), so that three requests find
// it among a thousand.
func TestRecordErrorsAreUsed(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "warm"))
		r.waitAcked(1)
		requests := 0
		l.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			l.fake.KeepControl()
			requests++
			preq := req.(*kmsg.ProduceRequest)
			var b kmsg.RecordBatch
			if err := b.ReadFrom(preq.Topics[0].Partitions[0].Records); err != nil {
				return nil, err, true
			}
			at := strings.Index(string(b.Records), "poison")
			if at < 0 {
				return nil, nil, false
			}
			res := preq.ResponseKind().(*kmsg.ProduceResponse)
			rt, rp := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
			rt.Topic, rp.ErrorCode = "t", kerr.InvalidRecord.Code
			rp.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: int32(strings.Count(string(b.Records[:at]), "good"))}}
			rp.ErrorMessage = new("no key")
			rt.Partitions = append(rt.Partitions, rp)
			res.Topics = append(res.Topics, rt)
			return res, nil, true
		})
		for i := range 1000 {
			value := "good"
			if i == 700 {
				value = "poison"
			}
			if _, err := r.trySend(sink.Record{Topic: "t", Partition: 0, Value: []byte(value)}); err != nil {
				break // found before we have sent everything
			}
		}
		r.producer.Flush()
		e := wantRecordError(l, r, 702)
		if len(r.acked) != 701 || !strings.Contains(e.Error(), "no key") {
			l.Errorf("%d records acknowledged; error %v", len(r.acked), e)
		}
		if requests > 8 {
			l.Errorf("it took %d requests", requests)
		}
	}, kfake.SeedTopics(2, "t"))
}

func TestCuts(t *testing.T) {
	for _, tc := range []struct {
		n     int
		named []int32
		want  []int
	}{
		{10, nil, []int{5}},
		{2, nil, []int{1}},
		{3, nil, []int{1}},
		{10, []int32{4}, []int{4, 5}},
		{10, []int32{0}, []int{1}},
		{10, []int32{9}, []int{9}},
		{10, []int32{3, 4, 0}, []int{1, 3, 4, 5}},
		{2, []int32{0, 1}, []int{1}},
		{10, []int32{-1, 10, 99}, []int{5}}, // nonsense is not trusted
	} {
		if got := splitPoints(tc.n, answerNaming(tc.named)); !slices.Equal(got, tc.want) {
			t.Errorf("cuts(%d, %v) = %v, want %v", tc.n, tc.named, got, tc.want)
		}
	}
}

// TestLimitIsExact: the largest record a topic takes is sent, and one byte more is not.
func TestLimitIsExact(t *testing.T) {
	const limit = 20_000
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
	testLimit(t, k.Cluster, topic, limit)
}

func testLimit(t *testing.T, k *kafkatest.Cluster, topic string, limit int) {
	t.Helper()
	rec := sink.Record{Topic: topic, Partition: 0, Key: []byte("key"), Headers: []sink.Header{{Key: "id", Value: []byte("7")}}}
	rec.Value = make([]byte, limit-200)
	for s := shapeOf(&rec); batchOverhead+s.wireSize(0, 0) < limit; s = shapeOf(&rec) {
		rec.Value = append(rec.Value, 0)
	}
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "before"))
	r.send(rec)
	r.waitAcked(2)
	r.send(recordFor(topic, 0, "between"))
	rec.Value = append(rec.Value, 0)
	r.send(rec)
	r.producer.Flush()
	err := r.waitRun()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != 4 || e.Size != limit+1 || e.Limit != limit {
		t.Fatalf("Run: %v, want a sink.RecordError of size %d", err, limit+1)
	}
	if got := len(k.ReadAll(t, topic)); got != 3 {
		t.Errorf("%d records in the log, want 3", got)
	}
}

// TestLimitRaised: a limit that was raised while we run is noticed by the record it was
// raised for.
func TestLimitRaised(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "10000"})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "small"))
	r.waitAcked(1)
	value := "20000"
	_, err := k.Admin(t).AlterTopicConfigs(testContext(t), alter("max.message.bytes", &value), topic)
	if err != nil {
		t.Fatal(err)
	}
	r.send(recordFor(topic, 0, strings.Repeat("x", 15_000)))
	r.send(recordFor(topic, 0, "behind"))
	r.mustDrain()
	if got := values(k.ReadAll(t, topic), 0); len(got) != 3 || got[2] != "behind" {
		t.Errorf("%d records in the log", len(got))
	}
}

// TestLimitLowered: a limit that was lowered costs a rejection and a split, no record.
func TestLimitLowered(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "0"))
	r.waitAcked(1)
	value := "3000"
	if _, err := k.Admin(t).AlterTopicConfigs(testContext(t), alter("max.message.bytes", &value), topic); err != nil {
		t.Fatal(err)
	}
	want := []string{"0"}
	for i := 1; i < 20_000; i++ {
		want = append(want, fmt.Sprint(i))
		r.send(recordFor(topic, 0, want[i]))
	}
	r.mustDrain()
	if n := r.client.Stat().Retries; n > 300 {
		t.Errorf("%d batches were sent in vain: the new limit was not noticed", n)
	}
	if diff := cmp.Diff(want, values(k.ReadAll(t, topic), 0)); diff != "" {
		t.Error(diff)
	}
}

// TestCompressedRecordOverTheLimit: what may shrink below the limit is sent, alone.
func TestCompressedRecordOverTheLimit(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "10000"})
	r := newRig(t, Config{Brokers: k.Addrs, Compression: "zstd"})
	r.send(recordFor(topic, 0, "before"))
	r.send(recordFor(topic, 0, strings.Repeat("x", 100_000)))
	r.send(recordFor(topic, 0, "behind"))
	r.mustDrain()
	if got := values(k.ReadAll(t, topic), 0); len(got) != 3 || len(got[1]) != 100_000 {
		t.Errorf("%d records in the log", len(got))
	}
}

// TestNoSuchPartition: a record for a partition that does not exist is a bad record, but
// only after the number of partitions was looked up anew.
func TestNoSuchPartition(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("t", 1, "x"))
	r.waitAcked(1)
	ctx := testContext(t)
	if _, err := k.Admin(t).CreatePartitions(ctx, 1, "t"); err != nil {
		t.Fatal(err)
	}
	r.send(recordFor("t", 2, "y"))
	r.waitAcked(2)
	r.send(recordFor("t", 3, "z"))
	err := r.waitRun()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 3 || e.Partition != 3 || !strings.Contains(err.Error(), "3 partitions") {
		t.Errorf("Run: %v", err)
	}
}

// TestIllegalTopicName: a name no broker takes is a bad record, not a topic to wait for.
func TestIllegalTopicName(t *testing.T) {
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "x"))
	r.send(recordFor("no such name!", 0, "y"))
	r.send(recordFor(topic, 0, "z"))
	err := r.waitRun()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 {
		t.Errorf("Run: %v", err)
	}
	if got := values(k.ReadAll(t, topic), 0); !slices.Contains(got, "x") {
		t.Errorf("log holds %q", got)
	}
}

// holdProduce parks produce requests until the returned function is called.
func holdProduce(c *kfake.Cluster) (release func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if ctx.Err() == nil {
			c.SleepControl(func() { <-ctx.Done() })
		}
		return nil, nil, false
	})
	return cancel
}

// TestLimitNotTold: a user who may not see the topic's configuration can write records of any
// size the broker takes.
func TestLimitNotTold(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1))
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "3000000"})
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, strings.Repeat("x", 2_000_000)))
	r.waitAcked(1)
	r.send(recordFor(topic, 0, strings.Repeat("x", 4_000_000)))
	r.producer.Flush()
	err := r.waitRun()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 || !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("Run: %v", err)
	}
}

// TestRefusedBehindRefused: a batch that was on the wire when an earlier record was refused,
// and is refused too, is not isolated any more: what follows the record at fault in it would
// be in the log without it.
func TestRefusedBehindRefused(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		l.fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			l.fake.KeepControl()
			produce := req.(*kmsg.ProduceRequest)
			res := kafkatest.Accept(produce)
			for i, p := range produce.Topics[0].Partitions {
				if bytes.Contains(p.Records, []byte("bad")) {
					res.Topics[0].Partitions[i].ErrorCode = kerr.InvalidRecord.Code
				} else {
					l.Errorf("a batch without a bad record is sent to partition %d", p.Partition)
				}
			}
			return res, nil, true
		})
		r := l.rig(Config{})
		r.send(recordFor("t", 1, "bad"))
		r.send(recordFor("t", 0, "bad too"))
		r.send(recordFor("t", 0, "behind it"))
		r.producer.CloseSend()
		if refused, ok := errors.AsType[*sink.RecordError](r.waitRun()); !ok || refused.Seq != 1 {
			l.Errorf("Run returns %v", refused)
		}
	}, kfake.SeedTopics(2, "t"))
}
