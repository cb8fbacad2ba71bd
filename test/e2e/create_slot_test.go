package e2e

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// If somebody else creates the publication, source.create=slot lets the first start create the slot. Later
// starts do not create it: if an existing slot has disappeared, rows are lost. Nor is the slot created again with a publication that has disappeared, too.
func TestCreateSlot(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, "CREATE PUBLICATION "+rig.Publication+" FOR TABLE outbox WITH (publish = 'insert')")
	rig.Start(t, "run", "-c", r.Config).Fails(t, exit.SlotLost, "does not exist")

	with := []string{"run", "-c", r.Config, "--set", "source.create=slot"}
	process := rig.Start(t, with...)
	process.Logged(t, "streaming")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Terminate(t)

	r.DB.Exec(t, "SELECT pg_drop_replication_slot('"+r.Slot+"')")
	rig.Start(t, with...).Fails(t, exit.SlotLost, "cannot be read from the WAL any more; outbox-cdc recover")
	r.Settle(t, 0)
	r.DB.Exec(t, "DROP PUBLICATION "+rig.Publication)
	r.Refused(t, exit.SlotLost, "was dropped")
	r.DB.Exec(t, "ALTER TABLE outbox DROP COLUMN xid")
	r.Refused(t, exit.SlotLost, "lacks the column xid")

	out, code := rig.Command(t, append(with, "--set", "position_topic=")...)
	if code != exit.Usage {
		t.Errorf("without position_topic: exit code %d\n%s", code, out)
	}
}
