package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestRejectedRecordIsIsolated: the broker rejects one record of a large batch. What was sent before
// it, on any partition, is delivered; nothing that was sent after it is in its partition.
func TestRejectedRecordIsIsolated(t *testing.T) {
	const n, bad = 900, 450
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	release := holdProduce(k)
	rejectPoison(k.Control, kerr.InvalidRecord)
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
			t.Errorf("partition 0 has %d records, want the %d before the rejected one", len(got), len(want))
		}
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("partition %d lacks records that were sent before the rejected one: it has %d of %d", p, len(got), len(want))
		}
	}
	if r.Acked() != len(log) {
		t.Errorf("%d records acknowledged, %d in the log", r.Acked(), len(log))
	}
}

// TestRejectedRecordEndsAnIdleProducer: a record that is too large is the first of those that wait for
// their topic, and nothing else has no outcome. Run ends nevertheless, without CloseSend.
func TestRejectedRecordEndsAnIdleProducer(t *testing.T) {
	k := kafkatest.Fake(t)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("late", 0, strings.Repeat("x", 2000)))
	r.send(recordFor("late", 0, "behind"))
	k.CreateTopic(t, "late", 2, map[string]string{"max.message.bytes": "1000"})
	wantRecordError(t, r, 1)
}

// TestEarlierRejectedRecordCounts: the earlier of two refused records counts, and neither is acknowledged.
func TestEarlierRejectedRecordCounts(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 1, "warm"))
		r.AwaitAcked(1)
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: 3},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
		r.send(recordFor("t", 0, "early"))
		r.send(recordFor("t", 1, "late"))
		r.producer.Flush()
		err := r.Wait()
		if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 {
			l.Errorf("Run: %v, want the error of record 2", err)
		}
		if r.Acked() != 1 || len(r.Failed()) == 0 {
			l.Errorf("acknowledged: %v, failures: %v", r.Acked(), r.Failed())
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestNamedRecordIsIsolatedAtOnce: the broker names the record (KIP-467), so that three requests find
// it among a thousand.
func TestNamedRecordIsIsolatedAtOnce(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "warm"))
		r.AwaitAcked(1)
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
		if r.Acked() != 701 || !strings.Contains(e.Error(), "no key") {
			l.Errorf("%d records acknowledged; error %v", r.Acked(), e)
		}
		if requests > 8 {
			l.Errorf("it took %d requests", requests)
		}
	}, kfake.SeedTopics(2, "t"))
}

func TestSplitPoints(t *testing.T) {
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

// TestUnknownPartitionRejectsTheRecord: a record for a partition that does not exist is a bad record, but
// only after the number of partitions was looked up anew.
func TestUnknownPartitionRejectsTheRecord(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor("t", 1, "x"))
	r.AwaitAcked(1)
	ctx := sinktest.Context(t)
	if _, err := k.Admin(t).CreatePartitions(ctx, 1, "t"); err != nil {
		t.Fatal(err)
	}
	r.send(recordFor("t", 2, "y"))
	r.AwaitAcked(2)
	r.send(recordFor("t", 3, "z"))
	err := r.Wait()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 3 || e.Partition != 3 || !strings.Contains(err.Error(), "3 partitions") {
		t.Errorf("Run: %v", err)
	}
}

// TestIllegalTopicNameRejectsTheRecord: a name no broker takes is a bad record, not a topic to wait for.
func TestIllegalTopicNameRejectsTheRecord(t *testing.T) {
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "x"))
	r.send(recordFor("no such name!", 0, "y"))
	r.send(recordFor(topic, 0, "z"))
	err := r.Wait()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 {
		t.Errorf("Run: %v", err)
	}
	if got := values(k.ReadAll(t, topic), 0); !slices.Contains(got, "x") {
		t.Errorf("log holds %q", got)
	}
}

// TestRejectedBatchBehindARejectedRecordIsDropped: a batch that was on the wire when an earlier record was refused,
// and is refused too, is not isolated any more: what follows the record at fault in it would
// be in the log without it.
func TestRejectedBatchBehindARejectedRecordIsDropped(t *testing.T) {
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
		lookup := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable, Count: -1})
		r := l.rig(Config{})
		r.send(recordFor("t", 1, "bad"))
		r.send(recordFor("t", 0, "bad too"))
		r.send(recordFor("t", 0, "behind it"))
		r.producer.CloseSend()
		lookup.Remove() // now all of them are in the first request
		if refused, ok := errors.AsType[*sink.RecordError](r.Wait()); !ok || refused.Seq != 1 {
			l.Errorf("Run returns %v", refused)
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestCompactedTopicRejectsARecordWithoutKey: the broker names the record without one; what is before it is
// delivered, nothing behind it.
func TestCompactedTopicRejectsARecordWithoutKey(t *testing.T) {
	t.Parallel()
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "warm"))
	r.AwaitAcked(1)
	const n, bad = 1000, 600
	for i := range n {
		rec := recordFor(topic, 0, fmt.Sprint(i))
		if i == bad {
			rec.Key = nil
		}
		if _, err := r.trySend(rec); err != nil {
			break // found before we have sent everything
		}
	}
	r.producer.Flush()
	err := r.Wait()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != bad+2 || !strings.Contains(err.Error(), "INVALID_RECORD") {
		t.Fatalf("Run: %v", err)
	}
	t.Log(err)
	got := values(k.ReadAll(t, topic), 0)
	if len(got) != bad+1 || got[bad] != fmt.Sprint(bad-1) {
		t.Errorf("%d records in the log, want %d", len(got), bad+1)
	}
}

// TestCorruptRecordIsIsolated has a broker call one of three records corrupt whenever it sees it.
func TestCorruptRecordIsIsolated(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "first"))
		r.AwaitAcked(1)
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
		if r.Acked() != 2 {
			l.Errorf("acknowledged: %v, want 1 and 2", r.Acked())
		}
		if seen < 2*corruptLimit {
			l.Errorf("blamed after %d answers", seen)
		}
	}, kfake.SeedTopics(2, "t"))
}

// substituteTo has records go to the topic dead, but those that were to go there.
func substituteTo(dead string) sink.Substitute {
	return func(r *sink.Record, refused *sink.RecordError) *sink.Record {
		if r.Topic == dead {
			return nil
		}
		r.Headers = append(r.Headers, sink.Header{Key: "from", Value: []byte(refused.Topic)}, sink.Header{Key: "why", Value: []byte(refused.Reason.Error())})
		r.Topic, r.Partition = dead, sink.AnyPartition
		return r
	}
}

// TestSubstituteForAnIsolatedRecord: a record that only the broker can judge is isolated first.
func TestSubstituteForAnIsolatedRecord(t *testing.T) {
	k := kafkatest.Real(t)
	compacted := k.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	dead := k.Topic(t, 1, nil)
	r := newRigWith(t, Config{Brokers: k.Addrs}, sink.WriterConfig{Substitute: substituteTo(dead)})
	var want []string
	for i := range 50 {
		rec := recordFor(compacted, 0, fmt.Sprint(i))
		if i%10 == 5 {
			rec.Key = nil
		} else {
			want = append(want, fmt.Sprint(i))
		}
		r.send(rec)
	}
	r.drain()
	if got := values(k.ReadAll(t, compacted), 0); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := values(k.ReadAll(t, dead), 0); !slices.Equal(got, []string{"5", "15", "25", "35", "45"}) {
		t.Errorf("substitutes %q", got)
	}
}

// TestSubstituteForTheSameTopic: a substitute for the same topic takes the place of the record that the broker rejects.
// Otherwise a later record would be stored without it if the process ended in between.
func TestSubstituteForTheSameTopic(t *testing.T) {
	fake := kafkatest.Fake(t)
	topic := fake.Topic(t, 1, map[string]string{"max.message.bytes": "5000"})
	short := func(rec *sink.Record, _ *sink.RecordError) *sink.Record {
		return &sink.Record{Topic: rec.Topic, Partition: sink.AnyPartition, Value: rec.Value[:2]}
	}
	// With compression only the broker can tell whether a record is too large.
	r := newRigWith(t, Config{Brokers: fake.Addrs, Compression: "gzip"}, sink.WriterConfig{Substitute: short})
	var want []string
	for i := range 50 {
		value := fmt.Sprintf("%02d", i)
		want = append(want, value)
		if i%10 == 5 {
			noise := make([]byte, 10_000)
			for j := range noise {
				noise[j] = byte(rand.Uint32())
			}
			value += string(noise)
		}
		r.send(recordFor(topic, 0, value))
	}
	r.drain()
	if got := values(fake.ReadAll(t, topic), 0); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSubstituteForAnInvalidTopic: records that wait for a topic that cannot exist all go
// elsewhere, and so do those that come later.
func TestSubstituteForAnInvalidTopic(t *testing.T) {
	k := kafkatest.Real(t)
	dead := k.Topic(t, 1, nil)
	r := newRigWith(t, Config{Brokers: k.Addrs}, sink.WriterConfig{Substitute: substituteTo(dead)})
	for i := range 5 {
		r.sendKeyed("not legal!", "key", fmt.Sprint(i))
	}
	r.AwaitAcked(5)
	r.sendKeyed("not legal!", "key", "later")
	r.drain()
	if got := values(k.ReadAll(t, dead), 0); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "later"}) {
		t.Errorf("substitutes %q", got)
	}
}

// TestSubstituteWakesAnotherBrokersSender is sent although nothing else is, and nobody asks for it.
func TestSubstituteWakesAnotherBrokersSender(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		for node, topic := range []string{"t", "dead"} {
			if err := l.fake.MoveTopicPartition(topic, 0, int32(node)); err != nil {
				l.Fatal(err)
			}
		}
		j := sinktest.NewJournal()
		r := startRig(l, l.client(Config{}, j.Logger()), j, sink.WriterConfig{Substitute: substituteTo("dead")})
		r.send(recordFor("dead", 0, "the topic is known"))
		r.AwaitAcked(1)
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1})
		r.send(recordFor("t", 0, "refused"))
		r.drain()
	}, kfake.SeedTopics(1, "t", "dead"))
}

// incompressible returns n letters that no codec makes much smaller.
func incompressible(n int) string {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + rng.IntN(64))
	}
	return string(b)
}
