package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestMissingTopicIsAwaited: a missing topic is waited for, which is logged once, as is its end; others go on.
func TestMissingTopicIsAwaited(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	for i := range 10 {
		r.send(recordFor("late", 0, fmt.Sprint(i)))
	}
	r.send(recordFor("t", 0, "x"))
	r.AwaitAcked(1)
	r.Await("the stall", func() bool { return r.client.Stat().StalledSince != time.Time{} })
	fix := "kafka-topics.sh --bootstrap-server " + k.Addrs[0] + " --create --topic late --partitions 6"
	if s := r.client.Stat(); s.StallMissing != "late" || !strings.Contains(s.StallAdvice, fix) || !strings.Contains(s.StallAdvice, "sink.kafka.create_topics") {
		t.Errorf("the stall does not say how to fix it: %+v", s)
	}
	k.CreateTopic(t, "late", 2, nil)
	r.drain()
	if got := values(k.ReadAll(t, "late"), 0); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
		t.Errorf("log holds %q", got)
	}
	s := r.Journal.String()
	if !strings.Contains(s, fix) {
		t.Errorf("the log does not say how to fix it:\n%s", s)
	}
	if s := r.client.Stat(); s.StallMissing != "" || s.StallAdvice != "" {
		t.Errorf("still stalled: %+v", s)
	}
	for _, line := range []string{`level=ERROR msg="topic rejects records, retrying" topic=late`, `level=INFO msg="topic accepts records" topic=late`} {
		if strings.Count(s, line) != 1 {
			t.Errorf("%s is not there once:\n%s", line, s)
		}
	}
}

// TestMissingTopicsAreCreated: missing topics are created, by whichever broker is the controller, and
// one that somebody else creates at the same time is no error.
func TestMissingTopicsAreCreated(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec TopicSpec
		want int
	}{
		{"given", TopicSpec{Partitions: 5, ReplicationFactor: 1}, 5},
		{"default", TopicSpec{}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for broker := range 3 { // one of them is the controller
				k := kafkatest.Fake(t, kfake.DefaultNumPartitions(3))
				r := newRig(t, Config{Brokers: k.Addrs[broker : broker+1], CreateTopics: &tc.spec})
				for i := range 10 {
					r.sendKeyed(fmt.Sprint("new-", i), "key", "x")
				}
				r.drain()
				details, err := k.Admin(t).ListTopics(sinktest.Context(t), "new-7")
				if err != nil || len(details["new-7"].Partitions) != tc.want {
					t.Errorf("broker %d: %d partitions, want %d (%v)", broker, len(details["new-7"].Partitions), tc.want, err)
				}
				if s := r.Journal.String(); strings.Contains(s, "ERROR") || strings.Count(s, "topic created") != 10 {
					t.Errorf("log: %s", s)
				}
			}
		})
	}
}

// A topic that somebody has deleted while the relay was running is created again like a missing one, but with a warning: what consumers
// have not read is gone.
func TestDeletedTopicIsCreatedWithAWarning(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{CreateTopics: &TopicSpec{Partitions: 2}})
		r.sendKeyed("t", "key", "gone")
		r.AwaitAcked(1)
		if err := l.fake.DeleteTopic("t"); err != nil {
			l.Fatal(err)
		}
		r.sendKeyed("t", "key", "x")
		r.drain()
		if s := r.Journal.String(); strings.Count(s, `level=WARN msg="topic was re-created, its records are gone"`) != 1 || !strings.Contains(s, "outbox-cdc audit") {
			l.Errorf("log: %s", s)
		}
	})
}

// TestDeniedCreationIsRetried: the topic is waited for, loudly.
func TestDeniedCreationIsRetried(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation, Count: -1})
		r := l.rig(Config{CreateTopics: &TopicSpec{Partitions: 1}})
		r.send(recordFor("new", 0, "x"))
		bubble.Sleep(time.Minute)
		if s := r.Journal.String(); !strings.Contains(s, "POLICY_VIOLATION") || !strings.Contains(s, "sink stalled") || strings.Contains(s, "partition=") {
			l.Errorf("log: %s", s)
		}
		fault.Remove()
		r.drain()
		if s := r.Journal.String(); strings.Count(s, `level=INFO msg="topic accepts records" topic=new`) != 1 {
			l.Errorf("log: %s", s)
		}
	})
}

// TestBrokersMessageIsShown: the log and the state of the sink have the message with which the broker does not create a
// topic.
func TestBrokersMessageIsShown(t *testing.T) {
	for _, tc := range []struct {
		code    *kerr.Error
		message string
	}{
		{kerr.InvalidTopicException, "Topic 'a.b' collides with existing topics: a_b"},
		{kerr.PolicyViolation, "Topics need an owner"},
		{kerr.TopicAuthorizationFailed, "Create is not granted"},
		{kerr.InvalidConfig, "Invalid value 1 for configuration min.insync.replicas"},
		{kerr.InvalidReplicationFactor, "Replication factor: 3 larger than available brokers: 1"},
	} {
		t.Run(tc.code.Message, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				var fixed atomic.Bool
				l.fake.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
					l.fake.KeepControl()
					if fixed.Load() {
						return nil, nil, false
					}
					creq := req.(*kmsg.CreateTopicsRequest)
					res := creq.ResponseKind().(*kmsg.CreateTopicsResponse)
					for _, topic := range creq.Topics {
						rt := kmsg.NewCreateTopicsResponseTopic()
						rt.Topic, rt.ErrorCode, rt.ErrorMessage = topic.Topic, tc.code.Code, new(tc.message+".")
						res.Topics = append(res.Topics, rt)
					}
					return res, nil, true
				})
				r := l.rig(Config{CreateTopics: &TopicSpec{Partitions: 1}})
				r.send(recordFor("a.b", 0, "x"))
				bubble.Sleep(time.Minute)
				want := tc.code.Message + ": " + tc.message
				if s := r.client.Stat(); !strings.Contains(s.StallReason, want) {
					l.Errorf("the stall is %q, want %q", s.StallReason, want)
				}
				if s := r.Journal.String(); strings.Count(s, want) != 2 { // topic not created, sink stalled
					l.Errorf("log: %s", s)
				}
				if err := r.client.cluster.ensureCompacted(l.Context(), "positions", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
					l.Errorf("position topic: %v, want %q", err, want)
				}
				fixed.Store(true)
				r.drain()
				if s := r.client.Stat(); s.StallReason != "" {
					l.Errorf("still stalled: %s", s.StallReason)
				}
			})
		})
	}
}

// TestBrokersMessageOfALogin: sarama wraps the message of a failed login in the error code.
func TestBrokersMessageOfALogin(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{sarama.Wrap(sarama.ErrSASLAuthenticationFailed, errors.New("token has expired")), "the broker says: token has expired"},
		{fmt.Errorf("login: %w", sarama.Wrap(sarama.ErrSASLAuthenticationFailed, errors.New("no"))), "the broker says: no"},
		{sarama.ErrSASLAuthenticationFailed, "or the token, are wrong"},
		{fmt.Errorf("login: %w", sarama.ErrSASLAuthenticationFailed), "or the token, are wrong"},
	} {
		if got := inOurWords(tc.err).Error(); !strings.HasPrefix(got, "SASL_AUTHENTICATION_FAILED: ") || !strings.HasSuffix(got, tc.want) {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
}

// TestNewPartitionsAreUsedWhenDrained: new partitions are used once nothing is unacknowledged under the old
// number, so that a key never has records on their way to two partitions.
func TestNewPartitionsAreUsedWhenDrained(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		var keys []string
		for i := range 200 {
			keys = append(keys, fmt.Sprint("key-", i))
		}
		for _, key := range keys {
			r.sendKeyed("t", key, "old")
		}
		r.AwaitAcked(len(keys))
		admin := l.admin()
		if _, err := admin.CreatePartitions(l.Context(), 4, "t"); err != nil {
			l.Fatal(err)
		}
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
		r.send(recordFor("t", 1, "stuck"))
		r.producer.Flush()
		bubble.Sleep(refreshEvery + time.Second) // now the growth is known
		for _, key := range keys {
			r.sendKeyed("t", key, "new")
		}
		bubble.Sleep(time.Minute)
		if r.Acked() != len(keys) {
			l.Errorf("%d records acknowledged while one is not", r.Acked())
		}
		fault.Remove()
		r.drain()
		if s := r.Journal.String(); strings.Count(s, "topic has more partitions") != 1 || !strings.Contains(s, "from=2 to=6") {
			l.Errorf("log: %s", s)
		}
		for _, rec := range l.readRecords("t", len(keys)*2+1) {
			n := map[string]int32{"old": 2, "new": 6, "stuck": 2}[string(rec.Value)]
			if string(rec.Value) != "stuck" && rec.Partition != byMurmur2(rec.Key, n) {
				l.Fatalf("%s record of %s is in partition %d", rec.Value, rec.Key, rec.Partition)
			}
		}
	}, kfake.SeedTopics(2, "t"))
}

// TestRecreatedTopicGetsUnacknowledgedRecords: its deletion is waited out, and what is unacknowledged goes to the
// new one.
func TestRecreatedTopicGetsUnacknowledgedRecords(t *testing.T) {
	k := kafkatest.Fake(t)
	k.CreateTopic(t, "t", 2, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	for i := range 10 {
		r.send(recordFor("t", 0, fmt.Sprint("old-", i)))
	}
	r.AwaitAcked(10)
	if _, err := k.Admin(t).DeleteTopic(sinktest.Context(t), "t"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.send(recordFor("t", 0, fmt.Sprint("new-", i)))
	}
	r.producer.Flush()
	r.Await("trouble", func() bool { return r.client.Stat().StalledSince != time.Time{} })
	k.CreateTopic(t, "t", 2, nil)
	r.drain()
	if got := values(k.ReadAll(t, "t"), 0); len(got) != 10 || got[0] != "new-0" || got[9] != "new-9" {
		t.Errorf("log holds %q", got)
	}
}

// TestNewLeaderIsFollowedAtOnce: the answer names the new leader (KIP-951), so no metadata is asked for,
// and nothing is waited for.
func TestNewLeaderIsFollowedAtOnce(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.AwaitAcked(1)
		asked := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
		began := time.Now()
		for i := range 30 {
			if err := l.fake.MoveTopicPartition("t", 0, int32(i%3)); err != nil {
				l.Fatal(err)
			}
			r.send(recordFor("t", 0, fmt.Sprint(i+1)))
			r.AwaitAcked(i + 2)
		}
		if took := bubble.Since(began); took > 0 || asked.Hits() > 0 {
			l.Errorf("took %s and %d metadata requests", took, asked.Hits())
		}
		r.drain()
	}, kfake.SeedTopics(1, "t"))
}

// TestManyPartitionsStayInTheWindow: a thousand topics of twelve partitions stay within the window's memory
// and give it back.
func TestManyPartitionsStayInTheWindow(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("topic-", i))
	}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(12, names...), kfake.BlackholeProduce())
	r := newRig(t, Config{Brokers: k.Addrs, WindowBytes: 4 << 20})
	peak := 0
	value := strings.Repeat("x", 100)
	for i := range 120_000 {
		r.sendKeyed(names[i%len(names)], fmt.Sprint("key-", i), value)
		if i%100 == 0 {
			r.producer.mu.Lock()
			peak = max(peak, r.client.pool.inUse())
			r.producer.mu.Unlock()
		}
	}
	if peak > 4<<20+maxChunk {
		t.Errorf("%d bytes used in a window of 4 MiB", peak)
	}
	r.AwaitAcked(120_000)
	r.Await("the memory to be given back", func() bool { // which follows the outcome
		r.producer.mu.Lock()
		defer r.producer.mu.Unlock()
		return r.client.pool.inUse() == 0
	})
	r.producer.mu.Lock()
	parts, batches := 0, 0
	for _, topic := range r.producer.topics {
		parts += len(topic.parts)
		for _, part := range topic.parts {
			batches += len(part.queue)
		}
	}
	if parts != 12_000 || batches != 0 {
		t.Errorf("%d partitions hold %d batches", parts, batches)
	}
	r.producer.mu.Unlock()
	r.drain()
}

// TestIdlePartitionsAreCheap: a partition without records costs its bookkeeping and nothing
// else.
func TestIdlePartitionsAreCheap(t *testing.T) {
	if size := unsafe.Sizeof(partition{}); size > 200 {
		t.Errorf("%d bytes per partition", size)
	}
}

// TestBrokerChoosesDefaultsOfACreatedTopic lets the cluster choose what is not configured.
func TestBrokerChoosesDefaultsOfACreatedTopic(t *testing.T) {
	k := kafkatest.Broker(t)
	for _, spec := range []TopicSpec{{}, {Partitions: 3, ReplicationFactor: 1}} {
		topic := kafkatest.UniqueName(t)
		r := newRig(t, Config{Brokers: k.Addrs, CreateTopics: &spec})
		r.sendKeyed(topic, "key", "x")
		r.drain()
		if got := len(k.ReadAll(t, topic)); got != 1 {
			t.Errorf("%d records", got)
		}
		if s := r.Journal.String(); strings.Contains(s, "level=ERROR") {
			t.Errorf("log: %s", s)
		}
		k.DeleteTopics(t, topic)
	}
}

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

// TestRecreatedTopicWithFewerPartitionsKeepsOrder: what waits for a partition that is gone goes to
// another one, before what came later for the same key.
func TestRecreatedTopicWithFewerPartitionsKeepsOrder(t *testing.T) {
	const keys, rounds = 100, 20
	inLab(t, 3, func(l *lab) {
		r := l.rig(Config{})
		round := func(n int) {
			for key := range keys {
				r.sendKeyed("t", fmt.Sprint("key-", key), fmt.Sprint(n))
			}
		}
		round(-1) // goes with the topic
		r.AwaitAcked(keys)
		stuck := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		for n := range rounds {
			round(n)
		}
		r.producer.Flush()
		bubble.Sleep(10 * time.Second)
		l.recreateTopic(4)
		stuck.Remove()
		r.AwaitAcked(keys * (rounds + 1))
		round(rounds)
		r.drain()

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
		if s := r.Journal.String(); strings.Count(s, "topic was re-created") != 1 || !strings.Contains(s, "from=6 to=4") {
			l.Errorf("log: %s", s)
		}
		r.producer.mu.Lock()
		defer r.producer.mu.Unlock()
		if r.client.pool.inUse() != 0 || r.producer.inFlightRecords != 0 || len(r.producer.retrying) != 0 {
			l.Errorf("%d bytes of %d records, %d partitions retrying", r.client.pool.inUse(), r.producer.inFlightRecords, len(r.producer.retrying))
		}
	}, kfake.SeedTopics(6, "t"))
}

// TestRemovedPartitionRejectsItsRecords: a record for a given partition that the topic has no longer is not put
// anywhere else.
func TestRemovedPartitionRejectsItsRecords(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 5, "x"))
		r.AwaitAcked(1)
		l.recreateTopic(4)
		r.send(recordFor("t", 0, "before"))
		gone := r.send(recordFor("t", 5, "gone"))
		r.producer.Flush()
		e, ok := errors.AsType[*sink.RecordError](r.Wait())
		if !ok || e.Seq != gone || e.Partition != 5 || !strings.Contains(e.Error(), "has 4 partitions") {
			l.Errorf("Run: %v", r.Wait())
		}
		if r.Acked() != 2 {
			l.Errorf("%d records acknowledged, want those sent before", r.Acked())
		}
	}, kfake.SeedTopics(6, "t"))
}

// TestFewerPartitionsWithoutTopicIDAreIgnored: where the cluster gives no topic ids, a smaller number of
// partitions may be old news of a topic that has grown; it is not acted upon, and said so.
func TestFewerPartitionsWithoutTopicIDAreIgnored(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 5, "x"))
		r.AwaitAcked(1)
		l.recreateTopic(4)
		r.send(recordFor("t", 5, "waits"))
		r.send(recordFor("t", 0, "does not wait"))
		r.AwaitAcked(2)
		bubble.Sleep(time.Minute)
		if s := r.client.Stat(); !strings.Contains(s.StallReason, "UNKNOWN_TOPIC_OR_PARTITION") || s.InFlightRecords != 1 {
			l.Errorf("Stat: %+v", s)
		}
		if s := r.Journal.String(); !strings.Contains(s, "topic rejects records") || !strings.Contains(s, "sink stalled") {
			l.Errorf("log: %s", s)
		}
	}, kfake.SeedTopics(6, "t"), oldBroker("v2.7"))
}
