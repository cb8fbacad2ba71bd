package e2e

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// relaysOver checks that the relay is ready for b, delivers every event, and that the next relay continues without a
// duplicate. Each broker has a test that calls it. TestCrashOver kills the relay and the broker.
func relaysOver(t *testing.T, b rig.Broker) {
	t.Helper()
	r := rig.NewOver(t, rig.Database(t), b)
	if out, code := rig.Command(t, "check", "-c", r.Config); code != 0 || !strings.Contains(out, " 0 failed, ") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	for range 2 {
		process := r.Run(t)
		r.Load.Run(t.Context(), t, 1000)
		r.Arrived(t)
		process.Terminate(t)
	}
	r.Settle(t, 0)
}
