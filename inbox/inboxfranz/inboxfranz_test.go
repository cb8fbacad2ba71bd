package inboxfranz_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m))) }

func TestContract(t *testing.T) {
	inboxtest.ContractOfKafka(t, run(kgo.HeartbeatInterval(100*time.Millisecond))) // a heartbeat reports a rebalance
}

func TestOutage(t *testing.T) {
	t.Parallel()
	inboxtest.OutageOfKafka(t, run(), "inbox: broker unavailable, retrying", "inbox: broker available again")
}

// BenchmarkLatency uses the default settings of the client.
func BenchmarkLatency(b *testing.B) {
	inboxtest.Latency(b, inboxtest.Kafka(b, kafkatest.Broker(b), run()))
}

func run(opts ...kgo.Opt) inboxtest.RunKafka {
	return func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error {
		return inboxfranz.Run(ctx, p, group, []string{topic}, append(opts, kgo.SeedBrokers(brokers...))...)
	}
}

// A partition with a slow handler has its queue and one fetch in memory, and does not delay the other
// partitions.
func TestMemoryOfASlowPartition(t *testing.T) {
	t.Parallel()
	const slow, fast, records, recordSize = 0, 1, 600, 10_000 // 6 MB
	cluster := kafkatest.Fake(t).Cluster
	topic := cluster.Topic(t, 2, nil)
	release := make(chan struct{})
	var handledSlow, handledFast, polled atomic.Int64
	p := inboxtest.Processor(t, func(ctx context.Context, _ pgx.Tx, e inbox.Event) error {
		if e.Partition == fast {
			handledFast.Add(1)
			return nil
		}
		handledSlow.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	producer := cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce := func(partition int32, n int) {
		var batch []*kgo.Record
		for range n {
			batch = append(batch, &kgo.Record{Topic: topic, Partition: partition, Value: make([]byte, recordSize), Headers: []kgo.RecordHeader{
				{Key: "id", Value: []byte(uuid.NewString())}, {Key: "eventType", Value: []byte("A")},
			}})
		}
		if err := producer.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce(slow, records)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- inboxfranz.Run(ctx, p, topic, []string{topic}, kgo.SeedBrokers(cluster.Addrs...),
			kgo.WithHooks(countPolled{&polled, slow}))
	}()
	for n := range int64(20) { // each needs a fetch, after the one that filled the queue
		produce(fast, 1)
		wait.For(t, "an event of the other partition", func() bool { return handledFast.Load() == n+1 })
	}
	wait.For(t, "the first event of the slow partition", func() bool { return handledSlow.Load() > 0 }) // its transaction may begin later
	if n := polled.Load(); handledSlow.Load() != 1 || n*recordSize > 3<<20 {
		t.Errorf("the slow partition has %d records of %d bytes in memory", n, recordSize)
	}
	close(release)
	wait.For(t, "the events of the slow partition", func() bool { return handledSlow.Load() == records })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A stop is not logged as a failed fetch, whatever ends the context.
func TestStopIsNoFailedFetch(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t).Cluster
	topic := cluster.Topic(t, 1, nil)
	var log rig.Log
	p := inboxtest.LoggingProcessor(t, &log, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	if err := inboxfranz.Run(ctx, p, topic, []string{topic}, kgo.SeedBrokers(cluster.Addrs...)); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "fetch failed") {
		t.Errorf("the log has a failed fetch:\n%s", log.String())
	}
}

// countPolled counts the polled records of a partition.
type countPolled struct {
	n         *atomic.Int64
	partition int32
}

func (c countPolled) OnFetchRecordUnbuffered(r *kgo.Record, polled bool) {
	if polled && r.Partition == c.partition {
		c.n.Add(1)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	if err := inboxfranz.Run(t.Context(), p, "", []string{"orders"}); err == nil || err.Error() != "inboxfranz: the consumer group is empty" {
		t.Errorf("Run without a group = %v", err)
	}
	if err := inboxfranz.Run(t.Context(), p, "mail", nil); err == nil || err.Error() != "inboxfranz: there are no topics" {
		t.Errorf("Run without topics = %v", err)
	}
	opts := make([]kgo.Opt, 1, 20)
	opts[0] = kgo.SeedBrokers()
	if err := inboxfranz.Run(t.Context(), p, "mail", []string{"orders"}, opts...); err == nil || opts[:2][1] != nil {
		t.Errorf("Run = %v; it appended to the caller's options: %v", err, opts[:2])
	}
}
