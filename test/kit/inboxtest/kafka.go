package inboxtest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

const partitions = 3

// RunKafka calls the Run function of an adapter for Kafka. A new group starts at the beginning of the topic.
type RunKafka func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error

// Kafka returns the Subject of an adapter for Kafka, without Proxy and Restart.
func Kafka(tb testing.TB, cluster *kafkatest.Cluster, run RunKafka) Subject {
	tb.Helper()
	producer, admin := cluster.Client(tb, kgo.ProducerLinger(0)), cluster.Admin(tb)
	return Subject{
		Create: func(tb testing.TB, topic string) { tb.Helper(); cluster.CreateTopic(tb, topic, partitions, nil) },
		Publish: func(tb testing.TB, topic string, messages ...Message) {
			tb.Helper()
			var records []*kgo.Record
			for _, m := range messages {
				r := &kgo.Record{Topic: topic, Value: []byte(m.Payload)}
				if m.Key != "" {
					r.Key = []byte(m.Key)
				}
				if m.ID != "" {
					r.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte(m.ID)}, {Key: "eventType", Value: []byte(m.Type)}}
				}
				records = append(records, r)
			}
			if err := producer.ProduceSync(tb.Context(), records...).FirstErr(); err != nil {
				tb.Fatal(err)
			}
		},
		Run: func(ctx context.Context, _, group, topic string, p *inbox.Processor) error {
			return run(ctx, cluster.Addrs, group, topic, p)
		},
		// The sum of the committed offsets is the number of records before them.
		Acknowledged: func(tb testing.TB, group, _ string) int {
			tb.Helper()
			offsets, err := admin.FetchOffsets(tb.Context(), group)
			if err != nil {
				tb.Fatal(err)
			}
			var sum int64
			for _, o := range offsets.Offsets().Sorted() {
				sum += max(0, o.At)
			}
			return int(sum)
		},
		Log: Lines{
			Joining: "inbox: joining the consumer group", Assigned: "inbox: partitions assigned",
			Missing: "inbox: topic does not exist, waiting for it",
		},
	}
}

// ContractOfKafka tests an adapter against kfake and, in a full run, against a real broker.
func ContractOfKafka(t *testing.T, run RunKafka) {
	t.Helper()
	kafkatest.Each(t, func(t *testing.T, cluster *kafkatest.Cluster) {
		t.Helper()
		Contract(t, Kafka(t, cluster, run))
	})
}

// OutageOfKafka is [Outage] with kfake.
func OutageOfKafka(t *testing.T, run RunKafka, lost, back string) {
	t.Helper()
	proxy := faultproxy.Start(t, "")
	s := Kafka(t, kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen)).Cluster, run)
	s.Proxy = func(testing.TB) *faultproxy.Proxy { return proxy }
	s.Log.Lost, s.Log.Back = lost, back
	Outage(t, s)
}
