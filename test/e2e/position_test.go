package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// The relay records a position before it confirms it to Postgres, and records the end of the stream at a
// clean stop.
func TestPositionIsRecorded(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	began := time.Now()
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 2000)
	r.Arrived(t)
	process.Terminate(t)
	p := r.Recorded(t)
	conn := r.Connect(t)
	slot := rig.Ask[string](t, conn, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.Slot)
	system := rig.Ask[string](t, conn, `SELECT system_identifier::text FROM pg_control_system()`)
	if p.EndLSN.String() != slot || p.SystemID != system || p.Timeline != 1 || p.Slot != r.Slot || p.WrittenAt.Before(began) || p.WrittenAt.After(time.Now()) {
		t.Errorf("recorded %+v, the slot of system %s is at %s", p, system, slot)
	}
	again := r.Run(t)
	again.Logged(t, "from="+slot)
	again.Terminate(t)
	r.Settle(t, 0)
}

// The relay detects a slot that does not continue at the recorded position. With --accept-gap it continues, once. It does not
// create a slot again whose publication is gone, too.
func TestSlotMoved(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	r.Deliver(t, 500)
	process.Terminate(t)
	before := r.Recorded(t)

	// The relay never delivers this row, and the ledger would report it as a phantom. So the test inserts it
	// directly.
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'gap', 'Lost', '{}')`)
	r.DB.Exec(t, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.Slot)
	for range 2 { // a second start fails in the same way
		r.Refused(t, relay.ExitContinuity, r.Slot, before.EndLSN.String(), "--accept-gap")
	}
	r.GoesOn(t, "--accept-gap")
	if p := r.Recorded(t); p.EndLSN <= before.EndLSN {
		t.Errorf("recorded %s after the gap, %s before", p.EndLSN, before.EndLSN)
	}
	r.GoesOn(t) // the next start does not need the flag
	r.Settle(t, 0)

	before = r.Recorded(t)
	dropSlot(t, r)
	r.DB.Exec(t, `DROP PUBLICATION `+rig.Publication)
	r.Refused(t, relay.ExitSlotLost, r.Slot, before.EndLSN.String(), "were dropped")
}

// Without a position topic, the relay records no position and logs a warning.
func TestNoPositionTopic(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "position_topic=")
	process.Logged(t, "streaming")
	r.Load.Run(t.Context(), t, 500)
	r.Arrived(t)
	process.Terminate(t)
	if out := process.Stderr.String(); strings.Count(out, "position_topic is empty") != 1 {
		t.Errorf("the warning is missing:\n%s", out)
	}
	for _, rec := range r.Kafka.ReadAll(t, relay.PositionTopic) {
		if strings.HasPrefix(string(rec.Key), r.Slot) {
			t.Errorf("a record: %s", rec.Value)
		}
	}
	r.Settle(t, 0)
}

// The test kills relays and standbys and compacts the position topic in between. The next relay continues
// without a gap.
func TestNoGapAfterCrashesAndCompaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a log cleaner")
	r, fake := rig.NewFake(t)
	active := r.Run(t)
	for range 3 {
		r.Load.Run(t.Context(), t, 300)
		r.Confirmed(t)
		standby := rig.Start(t, "run", "-c", r.Config)
		standby.Logged(t, "standby: another process uses the slot")
		standby.Kill(t)
		fake.Control.Compact()
		standby = rig.Start(t, "run", "-c", r.Config)
		standby.Logged(t, "standby: another process uses the slot")
		active.Kill(t)
		standby.Logged(t, "msg=streaming")
		fake.Control.Compact()
		r.Load.Run(t.Context(), t, 300)
		standby.Kill(t) // its latest positions are not recorded yet
		fake.Control.Compact()
		active = r.Run(t)
	}
	r.Arrived(t)
	active.Terminate(t)
	r.Settle(t, 3*600)
}
