package test

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// Where the publication is made by others, a first start makes the slot if that is wanted, and
// no later one does: a slot that was there and is gone has lost rows.
func TestCreateSlot(t *testing.T) {
	t.Parallel()
	r, _ := fakeRig(t)
	r.db.Exec(t, "CREATE PUBLICATION "+publication+" FOR TABLE outbox WITH (publish = 'insert')")
	start(t, "run", "-c", r.config).fails(t, relay.ExitSlotLost, "does not exist")

	with := []string{"run", "-c", r.config, "--set", "source.create_slot=true"}
	process := start(t, with...)
	process.logged(t, "streaming")
	r.load.run(t.Context(), t, 100)
	r.arrived(t, 30*time.Second)
	process.terminate(t)

	r.db.Exec(t, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	start(t, with...).fails(t, relay.ExitSlotLost, "cannot be read any more")
	r.settle(t, 0)

	out, code := command(t, append(with, "--set", "position_topic=")...)
	if code != relay.ExitUsage {
		t.Errorf("without position_topic: exit code %d\n%s", code, out)
	}
}
