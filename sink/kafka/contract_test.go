package kafka

import (
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// TestContract runs the suite of package sinktest. Without compression, the producer detects a record that is too
// large before it sends it. With compression, the broker rejects the record.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"none", "lz4"} {
		t.Run(compression, func(t *testing.T) {
			if compression != "none" {
				need.FullRun(t, "TestContractWithBrokerFaults compresses as well")
			}
			kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
				t.Helper()
				sinktest.Run(t, newSubject(k, nil, compression))
			})
		})
	}
}

// TestContractWithBrokerFaults runs the suite with faults that only an in-process broker can inject, and with compression.
func TestContractWithBrokerFaults(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	sinktest.Run(t, newSubject(k.Cluster, k.Control, "lz4"))
}

// A subject is a Kafka cluster for package sinktest. It injects faults into produce requests, either in the
// client's connection or in the broker.
type subject struct {
	*kafkatest.Cluster
	control     *kfake.Cluster // nil if the broker cannot inject faults
	compression string
	faults      sinktest.ConnFaults
}

func newSubject(k *kafkatest.Cluster, control *kfake.Cluster, compression string) *subject {
	return &subject{Cluster: k, control: control, compression: compression, faults: sinktest.ConnFaults{IsWrite: beginsProduce}}
}

const subjectLimit = 20_000

func (s *subject) Broker(window int) sink.Broker {
	return Config{Brokers: s.Addrs, WindowRecords: window, Compression: s.compression, Dial: s.faults.Dial}
}

func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	return s.Topic(t, 3, map[string]string{"max.message.bytes": "20000"})
}

func (s *subject) Store(t *testing.T) string {
	t.Helper()
	name := kafkatest.UniqueName(t)
	s.DeleteTopics(t, name)
	return name
}

func (s *subject) Read(t *testing.T, topic string) []sink.StoredRecord {
	t.Helper()
	var all []sink.StoredRecord
	for _, rec := range s.ReadAll(t, topic) {
		stored := sink.StoredRecord{Offset: rec.Offset, Record: sink.Record{
			Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp,
		}}
		for _, h := range rec.Headers {
			stored.Headers = append(stored.Headers, sink.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, stored)
	}
	return all
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, incompressible(2*subjectLimit)...)
}

func (s *subject) Hold() sinktest.Fault {
	return s.faults.Hold()
}

func (s *subject) Faults() []sinktest.Fault {
	faults := []sinktest.Fault{s.faults.Cut(), s.faults.Lose()}
	if s.control == nil {
		return faults
	}
	for _, answer := range []struct {
		name string
		code *kerr.Error
	}{
		{"records are not stored for now", kerr.NotEnoughReplicas},
		{"records are stored, and the answer is no", kerr.NotEnoughReplicasAfterAppend},
		{"the broker forgets the producer", kerr.UnknownProducerID},
		{"leaders move", kerr.NotLeaderForPartition},
	} {
		faults = append(faults, sinktest.Fault{Name: answer.name, Begin: func(*testing.T) (<-chan struct{}, func()) {
			met := make(chan struct{})
			var once sync.Once
			fault := s.control.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: answer.code, Count: -1,
				When: func(kmsg.Request) bool { once.Do(func() { close(met) }); return true },
			})
			if answer.code == kerr.NotLeaderForPartition {
				s.control.ShufflePartitionLeaders()
			}
			return met, func() { fault.Remove() }
		}})
	}
	return faults
}

// beginsProduce reports whether b begins with a produce request that is not the last part of a larger one.
func beginsProduce(b []byte) bool {
	return len(b) >= 8 && int(b[0])<<24|int(b[1])<<16|int(b[2])<<8|int(b[3]) >= len(b)-4 && b[4] == 0 && b[5] == produceKey
}
