package soak

import (
	"context"
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Over a cluster of three brokers, whose leaders move and of which one at a time is killed, shut down or frozen, one relay and
// two keep the guarantees, and send no row twice. OUTBOX_TEST_REPLICATED is the number of strikes of each.
func TestSoakReplicated(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	for name, tc := range map[string]struct {
		relays  int
		weights map[Attack]int
	}{"one relay": {1, DefaultWeights()}, "two relays": {2, TakeoverWeights()}} {
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, soakConfig{relays: tc.relays, replicated: true})
			s.run(t, rig.EnvInt(t, "OUTBOX_TEST_REPLICATED", 6), Replicated(tc.weights))
			s.report(t)
			s.complain(t)
		})
	}
}

// members is the process of a broker that has several: an attack breaks the next one of them.
type members struct {
	*kafkatest.Replicated

	struck int // counts attacks
}

func (m *members) target() *kafkatest.Server { return m.Brokers[m.struck%len(m.Brokers)] }

func (m *members) Kill(ctx context.Context) error     { return m.target().Kill(ctx) }
func (m *members) Shutdown(ctx context.Context) error { return m.target().Shutdown(ctx) }
func (m *members) Pause() error                       { return m.target().Pause() }

// Restart returns when the broker has all records again, so that the next one can be broken.
func (m *members) Restart(ctx context.Context) error {
	defer func() { m.struck++ }()
	return errors.Join(m.target().Restart(ctx), m.AwaitInSync(ctx))
}

func (m *members) Resume() error {
	defer func() { m.struck++ }()
	return m.target().Resume()
}
