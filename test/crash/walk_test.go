package crash

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A relay that is stopped, killed, and deprived of its broker under load delivers every one of ten thousand rows, in order. This is
// the one test with real servers that every change must pass. What chance and time reveal is in the other tests.
func TestWalk(t *testing.T) {
	need.FullRun(t, "a real Kafka")
	const rows = 10_000
	r, _, broker := rig.NewOwnBroker(t)
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		process.Terminate(t)
		process = r.Run(t)

		r.Progress(t)
		if n := r.Ledger.Counts().Duplicates; n > 0 {
			t.Errorf("%d records were resent after a clean stop", n)
		}
		process.Kill(t)
		process = r.Run(t)

		r.Progress(t)
		rig.Must(t, broker.Shutdown(t.Context()))
		rig.Must(t, broker.Restart(t.Context()))
		r.Progress(t)
	})
	if missing := rows - r.Load.Total(); missing > 0 {
		r.Load.Run(t.Context(), t, missing)
	}
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, r.Load.Total())
	if n := r.Ledger.Counts().Duplicates; n > 0 {
		t.Errorf("%d records were sent twice", n)
	}
}
