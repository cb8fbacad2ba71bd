package kafka

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestTopicAppearsLater: a missing topic is waited for, and said so once; others go on.
func TestTopicAppearsLater(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "t"))
	r := newRig(t, Config{Brokers: k.Addrs})
	for i := range 10 {
		r.send(recordFor("late", 0, fmt.Sprint(i)))
	}
	r.send(recordFor("t", 0, "x"))
	r.waitAcked(1)
	r.wait("the stall", func() bool { signal(r.changed); return r.client.Stat().StalledSince != time.Time{} })
	k.CreateTopic(t, "late", 2, nil)
	r.mustDrain()
	if got := values(k.ReadAll(t, "late"), 0); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
		t.Errorf("log holds %q", got)
	}
	if s := r.journal.String(); strings.Count(s, "topic does not take records") != 1 || !strings.Contains(s, "topic=late") {
		t.Errorf("log: %s", s)
	}
}

// TestCreateTopics: missing topics are created, by whichever broker is the controller, and
// one that somebody else creates at the same time is no error.
func TestCreateTopics(t *testing.T) {
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
				r.mustDrain()
				details, err := k.Admin(t).ListTopics(testContext(t), "new-7")
				if err != nil || len(details["new-7"].Partitions) != tc.want {
					t.Errorf("broker %d: %d partitions, want %d (%v)", broker, len(details["new-7"].Partitions), tc.want, err)
				}
				if s := r.journal.String(); strings.Contains(s, "ERROR") || strings.Count(s, "topic created") != 10 {
					t.Errorf("log: %s", s)
				}
			}
		})
	}
}

// TestCreateTopicsRefused: the topic is waited for, loudly.
func TestCreateTopicsRefused(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation, Count: -1})
		r := l.rig(Config{CreateTopics: &TopicSpec{Partitions: 1}})
		r.send(recordFor("new", 0, "x"))
		time.Sleep(time.Minute)
		if s := r.journal.String(); !strings.Contains(s, "POLICY_VIOLATION") || !strings.Contains(s, "sink stalled") {
			l.Errorf("log: %s", s)
		}
		fault.Remove()
		r.mustDrain()
	})
}

// TestTopicGrows: new partitions are used once nothing is unacknowledged under the old
// number, so that a key never has records on their way to two partitions.
func TestTopicGrows(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		r := l.rig(Config{})
		var keys []string
		for i := range 200 {
			keys = append(keys, fmt.Sprint("key-", i))
		}
		for _, key := range keys {
			r.sendKeyed("t", key, "old")
		}
		r.waitAcked(len(keys))
		admin := l.admin()
		if _, err := admin.CreatePartitions(l.Context(), 4, "t"); err != nil {
			l.Fatal(err)
		}
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
		r.send(recordFor("t", 1, "stuck"))
		r.producer.Flush()
		time.Sleep(refreshEvery + time.Second) // now the growth is known
		for _, key := range keys {
			r.sendKeyed("t", key, "new")
		}
		time.Sleep(time.Minute)
		if len(r.acked) != len(keys) {
			l.Errorf("%d records acknowledged while one is not", len(r.acked))
		}
		fault.Remove()
		r.mustDrain()
		if s := r.journal.String(); strings.Count(s, "topic has more partitions") != 1 || !strings.Contains(s, "from=2 to=6") {
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

// TestTopicCreatedAnew: its deletion is waited out, and what is unacknowledged goes to the
// new one.
func TestTopicCreatedAnew(t *testing.T) {
	k := kafkatest.Fake(t)
	k.CreateTopic(t, "t", 2, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	for i := range 10 {
		r.send(recordFor("t", 0, fmt.Sprint("old-", i)))
	}
	r.waitAcked(10)
	if _, err := k.Admin(t).DeleteTopic(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.send(recordFor("t", 0, fmt.Sprint("new-", i)))
	}
	r.producer.Flush()
	r.wait("trouble", func() bool { signal(r.changed); return r.client.Stat().StalledSince != time.Time{} })
	k.CreateTopic(t, "t", 2, nil)
	r.mustDrain()
	if got := values(k.ReadAll(t, "t"), 0); len(got) != 10 || got[0] != "new-0" || got[9] != "new-9" {
		t.Errorf("log holds %q", got)
	}
}

// TestLeaderMoves: the answer names the new leader (KIP-951), so no metadata is asked for,
// and nothing is waited for.
func TestLeaderMoves(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		r := l.rig(Config{})
		r.send(recordFor("t", 0, "0"))
		r.waitAcked(1)
		asked := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
		began := time.Now()
		for i := range 30 {
			if err := l.fake.MoveTopicPartition("t", 0, int32(i%3)); err != nil {
				l.Fatal(err)
			}
			r.send(recordFor("t", 0, fmt.Sprint(i+1)))
			r.waitAcked(i + 2)
		}
		if took := time.Since(began); took > 0 || asked.Hits() > 0 {
			l.Errorf("took %s and %d metadata requests", took, asked.Hits())
		}
		r.mustDrain()
	}, kfake.SeedTopics(1, "t"))
}

// TestLeaderMovesUnannounced: brokers before 3.7 do not name the leader.
func TestLeaderMovesUnannounced(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "t"), oldBroker("v2.8"))
	r := newRig(t, Config{Brokers: k.Addrs})
	for i := range 10 {
		r.send(recordFor("t", 0, fmt.Sprint(i)))
		r.waitAcked(i + 1)
		if err := k.Control.MoveTopicPartition("t", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
	}
	r.mustDrain()
}

// TestOldBrokers: what they do not know is left out of the conversation.
func TestOldBrokers(t *testing.T) {
	for _, version := range []string{"v0.11.0", "v1.0", "v2.1", "v2.4", "v2.8", "v3.3", "v3.9", "v4.1"} {
		t.Run(version, func(t *testing.T) {
			k := kafkatest.Fake(t, kfake.SeedTopics(2, "t"), oldBroker(version))
			r := newRig(t, Config{Brokers: k.Addrs})
			for i := range 1000 {
				rec := recordFor("t", int32(i%2), fmt.Sprint(i))
				rec.Headers = []sink.Header{{Key: "h", Value: []byte("v")}}
				r.send(rec)
			}
			r.mustDrain()
			if got := len(k.ReadAll(t, "t")); got != 1000 {
				t.Errorf("%d records in the log", got)
			}
		})
	}
}

// TestManyPartitions: a thousand topics of twelve partitions stay within the window's memory
// and give it back.
func TestManyPartitions(t *testing.T) {
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
			peak = max(peak, r.producer.memory)
			r.producer.mu.Unlock()
		}
	}
	if peak > 4<<20+maxChunk {
		t.Errorf("%d bytes held in a window of 4 MiB", peak)
	}
	r.waitAcked(120_000)
	r.producer.mu.Lock()
	parts, batches := 0, 0
	for _, topic := range r.producer.topics {
		parts += len(topic.parts)
		for _, part := range topic.parts {
			batches += len(part.queue)
		}
	}
	if parts != 12_000 || batches != 0 || r.producer.memory != 0 {
		t.Errorf("%d partitions hold %d batches and %d bytes", parts, batches, r.producer.memory)
	}
	r.producer.mu.Unlock()
	r.mustDrain()
}

// TestIdlePartitionsAreCheap: a partition without records costs its bookkeeping and nothing
// else.
func TestIdlePartitionsAreCheap(t *testing.T) {
	if size := unsafe.Sizeof(partition{}); size > 200 {
		t.Errorf("%d bytes per partition", size)
	}
}

// TestCheckDestinations names what is missing.
func TestCheckDestinations(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "there"))
	j := new(journal)
	c := openClient(t, Config{Brokers: k.Addrs}, j.logger())
	if err := c.CheckDestinations(testContext(t), "there"); err != nil {
		t.Error(err)
	}
	err := c.CheckDestinations(testContext(t), "there", "missing", "also-missing")
	if !errors.Is(err, sink.ErrMissing) || !strings.HasSuffix(err.Error(), ": missing, also-missing") {
		t.Errorf("CheckDestinations: %v", err)
	}
	c = openClient(t, Config{Brokers: k.Addrs, CreateTopics: new(TopicSpec)}, j.logger())
	if err := c.CheckDestinations(testContext(t), "missing"); err != nil {
		t.Errorf("a topic that may be created: %v", err)
	}
}

// admin returns an admin client in the lab.
func (l *lab) admin() *kadm.Client {
	l.Helper()
	return kadm.NewClient(l.reader())
}

func (l *lab) reader(opts ...kgo.Opt) *kgo.Client {
	l.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(l.addrs...), kgo.Dialer(l.net.DialContext))...)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(cl.Close)
	return cl
}

// readRecords returns the first n records of a topic, in no order across partitions.
func (l *lab) readRecords(topic string, n int) []*kgo.Record {
	l.Helper()
	cl := l.reader(kgo.ConsumeTopics(topic))
	var all []*kgo.Record
	for len(all) < n {
		fetches := cl.PollFetches(l.Context())
		if err := fetches.Err(); err != nil {
			l.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// oldBroker limits kfake to what the given version of Kafka knows.
func oldBroker(version string) kfake.Opt { return kfake.MaxVersions(kversion.FromString(version)) }

// unusedAddr returns an address on which nothing listens.
func unusedAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
