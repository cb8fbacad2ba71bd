package soak

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/brokertest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Over every broker, the relay keeps the guarantees that it has with Kafka. OUTBOX_TEST_OVER is the number of strikes with
// each one.
func TestSoakOver(t *testing.T) {
	need.FullRun(t, "it needs a server of each broker")
	for name, start := range brokertest.All() {
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, soakConfig{over: start})
			s.run(t, rig.EnvInt(t, "OUTBOX_TEST_OVER", 3), overWeights(s.over, DefaultWeights()))
			s.report(t)
			s.complain(t)
		})
	}
}

// With two relays, a broker that drops what is sent again has every record once and in order, although it does not reject
// the records of the older relay. OUTBOX_TEST_OVER_TAKEOVERS is the number of strikes with each one.
func TestSoakOverTwoRelays(t *testing.T) {
	need.FullRun(t, "it needs a server of each broker")
	for _, name := range []string{"JetStream", "Redis", "SQS"} {
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, soakConfig{over: brokertest.All()[name], relays: 2})
			s.run(t, rig.EnvInt(t, "OUTBOX_TEST_OVER_TAKEOVERS", 2), overWeights(s.over, TakeoverWeights()))
			s.report(t)
			s.complain(t)
		})
	}
}

// overWeights changes weights for a broker. The brokers start faster than Kafka, so they are restarted more often.
func overWeights(b *brokertest.Broker, weights map[Attack]int) map[Attack]int {
	if b.Process == nil {
		return WithoutBroker(weights)
	}
	weights[BrokerKill], weights[BrokerShutdown] = 40, 20
	return weights
}
