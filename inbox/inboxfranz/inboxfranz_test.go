package inboxfranz_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Wrap(pgtest.Wrap(m))) }

func TestContract(t *testing.T) {
	inboxtest.Contract(t, func(ctx context.Context, brokers []string, group, topic string, p *inbox.Processor) error {
		return inboxfranz.Run(ctx, p, inboxfranz.Config{},
			kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.HeartbeatInterval(100*time.Millisecond)) // a heartbeat reports a rebalance
	})
}
