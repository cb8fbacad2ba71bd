package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
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

// Without a position topic, the relay records no position and logs a warning. It also warns of its role, a superuser.
func TestNoPositionTopic(t *testing.T) {
	need.FullRun(t, "TestStartErrors runs always")
	t.Parallel()
	r := rig.New(t)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "position_topic=")
	process.Logged(t, "streaming")
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Terminate(t)
	if out := process.Stderr.String(); strings.Count(out, "position_topic is empty") != 1 {
		t.Errorf("the warning is missing:\n%s", out)
	}
	if n := process.Times("is a superuser"); n != 1 {
		t.Errorf("%d warnings of the superuser, want one:\n%s", n, process.Stderr)
	}
	for _, rec := range r.Kafka.ReadAll(t, position.DefaultTopic) {
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
