package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

func openPositions(tb testing.TB, k *kafkatest.Cluster, topic, key string) (*positionStore, *journal) {
	tb.Helper()
	j := new(journal)
	s, err := openClient(tb, Config{Brokers: k.Addrs}, j.logger()).openPositions(testContext(tb), topic, key)
	if err != nil {
		tb.Fatalf("open positions: %v", err)
	}
	return s, j
}

func write(tb testing.TB, s *positionStore, value string) {
	tb.Helper()
	if err := s.Write(testContext(tb), []byte(value)); err != nil {
		tb.Fatalf("Write: %v", err)
	}
}

func wantValue(tb testing.TB, s *positionStore, want string) {
	tb.Helper()
	got, err := s.Read(testContext(tb))
	if err != nil {
		tb.Fatalf("Read: %v", err)
	}
	if newest := append([][]byte{nil}, got...)[len(got)]; string(newest) != want {
		tb.Errorf("Read returns %q, want %q as the newest", got, want)
	}
}

// TestPositions: each key has a value of its own, and the newest is read, also by another
// process.
func TestPositions(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		t.Helper()
		topic := kafkatest.UniqueName(t)
		a, log := openPositions(t, k, topic, "a")
		if !strings.Contains(log.String(), "topic created") {
			t.Errorf("log: %s", log)
		}
		wantValue(t, a, "")
		b, log := openPositions(t, k, topic, "b")
		if log.String() != "" {
			t.Errorf("log: %s", log)
		}
		for i := range 5 {
			write(t, a, fmt.Sprint("a", i))
			write(t, b, fmt.Sprint("b", i))
		}
		wantValue(t, a, "a4")
		wantValue(t, b, "b4")
		again, _ := openPositions(t, k, topic, "a")
		wantValue(t, again, "a4")
		write(t, again, "a5")
		wantValue(t, a, "a5")

		configs, err := k.Admin(t).DescribeTopicConfigs(testContext(t), topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs[0].Configs {
			if c.Key == cleanupPolicy && c.MaybeValue() != compact {
				t.Errorf("%s is %q", c.Key, c.MaybeValue())
			}
		}
		k.DeleteTopics(t, topic)
	})
}

// TestPositionsRemoved: a tombstone removes the value, and what is before it.
func TestPositionsRemoved(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	write(t, r, "1")
	if err := k.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: "positions", Key: []byte("key")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	wantValue(t, r, "")
	write(t, r, "2")
	write(t, r, "3")
	got, err := r.Read(testContext(t))
	if err != nil || len(got) != 2 || string(got[0]) != "2" {
		t.Errorf("Read returns %q, %v, want what is behind the tombstone", got, err)
	}
}

// TestPositionsFarBack: a value is found however much others have written since.
func TestPositionsFarBack(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, log := openPositions(t, k.Cluster, "positions", "mine")
	if !strings.Contains(log.String(), "may expire") {
		t.Errorf("log: %s", log)
	}
	for i := range 3 {
		write(t, r, fmt.Sprint(i))
	}
	other := k.Client(t, kgo.DefaultProduceTopic("positions"))
	for range 10*scanRecords + 100 {
		other.Produce(t.Context(), &kgo.Record{Key: []byte("other"), Value: []byte("x")}, nil)
	}
	if err := other.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	wantValue(t, r, "2")
	write(t, r, "3")
	wantValue(t, r, "3")
	absent, _ := openPositions(t, k.Cluster, "positions", "absent")
	wantValue(t, absent, "")
}

// TestPositionsPatience: answers that heal are waited out, by Write and Read.
func TestPositionsPatience(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	for _, f := range []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2},
		{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 2},
		{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition, Count: 1},
		{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.LeaderNotAvailable, Count: 1},
	} {
		k.Control.Fault(f)
	}
	write(t, r, "value")
	wantValue(t, r, "value")
}

// TestPositionsContext: Write and Read end with their context, and a Write that was given up
// does not overtake a later one.
func TestPositionsContext(t *testing.T) {
	k := kafkatest.Fake(t, kfake.SeedTopics(1, "positions"))
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	fault := k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Fetch}, Err: kerr.NotEnoughReplicas, Count: -1})
	over := errors.New("over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, over)
	defer cancel()
	if err := r.Write(ctx, []byte("first")); !errors.Is(err, over) {
		t.Errorf("Write: %v", err)
	}
	if _, err := r.Read(ctx); !errors.Is(err, over) {
		t.Errorf("Read: %v", err)
	}
	fault.Remove()
	write(t, r, "second")
	wantValue(t, r, "second")
}

// TestPositionsRefused: what the broker never takes ends the store, and is not mistaken
// for a row that cannot be delivered.
func TestPositionsRefused(t *testing.T) {
	k := kafkatest.Fake(t)
	k.CreateTopic(t, "positions", 1, map[string]string{"max.message.bytes": "1000", cleanupPolicy: compact})
	r, _ := openPositions(t, k.Cluster, "positions", "key")
	for range 2 {
		err := r.Write(testContext(t), bytes.Repeat([]byte("x"), 2000))
		if _, isRecord := errors.AsType[*sink.RecordError](err); isRecord || !errors.Is(err, sink.ErrFatal) {
			t.Errorf("Write: %v", err)
		}
	}
}

// TestPositionsAccess: a topic that may not be seen or made is told at once.
func TestPositionsAccess(t *testing.T) {
	k := kafkatest.Fake(t)
	k.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := openClient(t, Config{Brokers: k.Addrs}, new(journal).logger()).OpenPositions(testContext(t), "positions", "key")
	if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "positions") {
		t.Errorf("OpenPositions: %v", err)
	}
}
