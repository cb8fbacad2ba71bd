package check

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestExactlyOnceConditions: the brokers must be new enough, and must allow the timeout.
func TestExactlyOnceConditions(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	t.Run("met", func(t *testing.T) {
		r := whole(t, srv, kafkatest.Broker(t))
		r.set("sink.kafka.exactly_once", "true")
		if unmet := r.look(t); len(unmet) > 0 {
			t.Errorf("%+v", unmet)
		}
	})
	t.Run("old brokers", func(t *testing.T) {
		r := whole(t, srv, kafkatest.Fake(t, kfake.MaxVersions(kversion.FromString("v3.5"))).Cluster)
		r.set("sink.kafka.exactly_once", "true")
		c := r.look(t)["transactions"]
		if c.State != Failed || !strings.Contains(c.Found, "needs brokers from Kafka 3.6") || !strings.Contains(c.Fix, "3.6") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		r := whole(t, srv, kafkatest.Fake(t, kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "30000"})).Cluster)
		r.set("sink.kafka.exactly_once", "true")
		c := r.look(t)["transaction timeout"]
		if c.State != Failed || !strings.Contains(c.Found, "is 1m0s, and transaction.max.timeout.ms of broker 0 is 30000") {
			t.Fatalf("%+v", c)
		}
		r.set("sink.kafka.transaction_timeout", "30s")
		r.becomesMet(t, "transaction timeout")
	})
}
