package e2e

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// With exactly_once, a read_committed consumer sees every row once: after a clean stop, after a kill in the middle of
// the load and of a large transaction, and when exactly_once is switched off and on.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills relays in large transactions")
	r := rig.NewExactlyOnce(t, pgtest.Database(t), kafkatest.Broker(t))
	process := r.Run(t)
	r.Deliver(t, 2000)
	process.Terminate(t)
	r.Settle(t, 0)

	process = r.Run(t)
	r.Load.MaxRows = 40_000 // more than a group
	rig.UnderLoad(t, r, func() {
		for range 3 {
			r.Progress(t)
			process.Kill(t)
			process = r.Run(t)
		}
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)

	for _, mode := range []string{"false", "true"} {
		process = r.Run(t, "--set", "sink.kafka.exactly_once="+mode)
		r.Deliver(t, 1000)
		process.Terminate(t)
		r.Settle(t, 0)
	}
}
