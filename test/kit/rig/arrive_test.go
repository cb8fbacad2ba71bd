package rig

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// Arrived waits for the collector even if the collector reads slowly and the relay's time has passed.
func TestArrivedWaitsForItsCollector(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t).Cluster
	topic := cluster.Topic(t, 1, nil)
	r := &Rig{Kafka: cluster, Topic: topic, Ledger: NewLedger(topic, delivery.Config{}), Load: newWorkload("")}
	r.Load.committed["a"] = 3
	client := cluster.Client(t)
	for n := range 3 {
		e := Event{"a", n}
		id := []byte(e.ID().String())
		Must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(e.Key), Value: e.payload(), Headers: []kgo.RecordHeader{
			{Key: "id", Value: id}, {Key: "eventType", Value: []byte(eventType)},
		}}).FirstErr())
	}
	r.Collector = cluster.Collect(t, func(rec *kgo.Record) {
		time.Sleep(50 * time.Millisecond)
		r.Ledger.take(rec)
	}, topic)
	r.Arrived(t, 0)
	r.Settle(t, 0)
}
