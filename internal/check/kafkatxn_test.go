package check

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestExactlyOnceConditions: the brokers must be new enough, and must allow the transactional id and the timeout.
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
	for name, request := range map[string]kmsg.Key{"no Describe": kmsg.FindCoordinator, "no Write": kmsg.EndTxn} {
		t.Run(name, func(t *testing.T) {
			fake := kafkatest.Fake(t)
			r := whole(t, srv, fake.Cluster)
			r.set("sink.kafka.exactly_once", "true")
			r.set("name", "orders")
			fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{request}, TopLevel: true, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
			c := r.look(t)["transactions"]
			const fix = "--add --allow-principal 'User:<the relay's>' --operation Write --operation Describe --transactional-id outbox-cdc-orders"
			if c.State != Failed || !strings.Contains(c.Found, "the user needs Write and Describe on the transactional id") ||
				!strings.HasPrefix(c.Fix, "kafka-acls.sh ") || !strings.HasSuffix(c.Fix, fix) {
				t.Errorf("%+v", c)
			}
			fault.Remove()
			r.becomesMet(t, "transactions")
		})
	}
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
