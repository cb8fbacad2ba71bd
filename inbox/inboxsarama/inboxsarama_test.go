package inboxsarama_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxsarama"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) {
	leak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m)))
}

func TestContract(t *testing.T) {
	inboxtest.ContractOfKafka(t, run(impatient()))
}

func TestOutage(t *testing.T) {
	t.Parallel()
	cfg := impatient()
	cfg.Metadata.Retry.Max = 0
	inboxtest.OutageOfKafka(t, run(cfg), "inbox: consumer group unavailable, retrying", "inbox: partitions assigned")
}

// BenchmarkLatency uses the default settings of the client.
func BenchmarkLatency(b *testing.B) {
	inboxtest.Latency(b, inboxtest.Kafka(b, kafkatest.Broker(b), run(config())))
}

func config() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	return cfg
}

// impatient returns a configuration whose retries come soon.
func impatient() *sarama.Config {
	cfg := config()
	cfg.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond // a heartbeat reports a rebalance
	cfg.Metadata.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Retry.Backoff = 100 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	return cfg
}

func run(cfg *sarama.Config) inboxtest.RunKafka {
	return func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error {
		g, err := sarama.NewConsumerGroup(brokers, group, cfg)
		if err != nil {
			return err
		}
		defer g.Close()
		return inboxsarama.Run(ctx, p, g, []string{topic})
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	if err := inboxsarama.Run(t.Context(), p, nil, []string{"orders"}); err == nil || err.Error() != "inboxsarama: the consumer group is nil" {
		t.Errorf("Run without a group = %v", err)
	}
	cluster := kafkatest.Fake(t).Cluster
	group, err := sarama.NewConsumerGroup(cluster.Addrs, "mail", config())
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	if err := inboxsarama.Run(t.Context(), p, group, nil); err == nil || err.Error() != "inboxsarama: there are no topics" {
		t.Errorf("Run without topics = %v", err)
	}
}
