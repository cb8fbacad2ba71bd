package kafka

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestInspector: what it says of brokers and topics, of which it makes none.
func TestInspector(t *testing.T) {
	k := kafkatest.Fake(t, kfake.NumBrokers(2))
	topic := k.Topic(t, 3, map[string]string{"max.message.bytes": "5000"})
	i, err := NewInspector(Config{Brokers: k.Addrs[:1]})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	ctx := testContext(t)
	if err := errors.Join(i.Reach(ctx, k.Addrs[1]), i.MayWrite(ctx), i.MayCreate(ctx, "absent", TopicSpec{Partitions: 1})); err != nil {
		t.Error(err)
	}
	brokers, err := i.Brokers(ctx)
	if diff := cmp.Diff([]Broker{{0, k.Addrs[0]}, {1, k.Addrs[1]}}, brokers); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	topics, err := i.Topics(ctx, "absent", topic)
	if err != nil {
		t.Fatal(err)
	}
	if absent := topics[0]; !absent.Missing || absent.Name != "absent" || absent.Err != nil || absent.Settings != nil {
		t.Errorf("%+v", absent)
	}
	there := topics[1]
	if there.Missing || there.Name != topic || there.Partitions != 3 || there.Leaderless != 0 || there.Replicas == 0 || there.InSync != there.Replicas || there.Settings["max.message.bytes"] != "5000" {
		t.Errorf("%+v", there)
	}
	if allowed, known := (&Topic{operations: 1<<4 | 1<<8}).Allows(OperationRead); allowed || !known {
		t.Error("Read is allowed without its bit")
	}
	if _, known := (&Topic{operations: -1 << 31}).Allows(OperationRead); known {
		t.Error("what was not told is known")
	}
	if err := i.MayCreate(ctx, "wide", TopicSpec{Partitions: 1, ReplicationFactor: 9}); err == nil || IsRefusal(err) {
		t.Errorf("a topic of 9 replicas on 2 brokers may be created: %v", err)
	}
}

// TestSize: a record of this size is the largest that a topic takes.
func TestSize(t *testing.T) {
	r := &sink.Record{Topic: "t", Partition: sink.AnyPartition, Key: []byte("key"), Value: make([]byte, 1000), Headers: []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "null", Value: nil}}}
	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	for limit, taken := range map[int]bool{Size(r): true, Size(r) - 1: false} {
		rig := newRig(t, Config{Brokers: k.Addrs, MaxMessageBytes: limit})
		rig.send(*r)
		if err := rig.drain(); (err == nil) != taken {
			t.Errorf("limit %d, size %d: %v", limit, Size(r), err)
		}
	}
}
