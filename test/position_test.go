package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// recorded returns the newest position record of the rig's relay.
func (r *rig) recorded(t *testing.T) checkpoint.Position {
	t.Helper()
	var p checkpoint.Position
	found := false
	for _, rec := range r.kafka.ReadAll(t, relay.PositionTopic) {
		if string(rec.Key) == r.slot {
			must(t, json.Unmarshal(rec.Value, &p))
			found = true
		}
	}
	if !found {
		t.Fatalf("no position of %s in %s", r.slot, relay.PositionTopic)
	}
	return p
}

// refused starts the relay and demands that it ends with code and says all of says.
func (r *rig) refused(t *testing.T, code int, says ...string) {
	t.Helper()
	start(t, "run", "-c", r.config).fails(t, code, says...)
}

// goesOn starts the relay with args and demands that new events arrive.
func (r *rig) goesOn(t *testing.T, args ...string) {
	t.Helper()
	process := start(t, append([]string{"run", "-c", r.config}, args...)...)
	process.logged(t, "streaming")
	r.load.run(t.Context(), t, 500)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
}

// The position is recorded before the server is told, and to the very end at a clean stop.
func TestPositionIsRecorded(t *testing.T) {
	r := newRig(t, pgtest.Database(t), kafkatest.Broker(t))
	process := r.run(t)
	r.load.run(t.Context(), t, 2000)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	p := r.recorded(t)
	conn := r.connect(t)
	slot := ask[string](t, conn, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
	system := ask[string](t, conn, `SELECT system_identifier::text FROM pg_control_system()`)
	if p.EndLSN.String() != slot || p.SystemID != system || p.Timeline != 1 || p.Slot != r.slot || time.Since(p.WrittenAt) > time.Minute {
		t.Errorf("recorded %+v, the slot of system %s is at %s", p, system, slot)
	}
	again := r.run(t)
	again.logged(t, "from="+slot)
	again.terminate(t)
	r.settle(t, 0)
}

// A slot that does not continue where the record ends is told from one that does, and the
// operator may go on.
func TestSlotMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		move string
		code int
		says string
	}{
		"advanced":                  {`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, 15, "--accept-gap"},
		"made anew":                 {`SELECT pg_drop_replication_slot($1); SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, 15, "--accept-gap"},
		"gone with its publication": {`SELECT pg_drop_replication_slot($1); DROP PUBLICATION ` + publication, 11, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.Database(t), kafkatest.Broker(t))
			process := r.run(t)
			r.load.run(t.Context(), t, 500)
			r.arrived(t, 30*time.Second)
			process.terminate(t)
			r.settle(t, 0)
			before := r.recorded(t)

			// Nobody will see this row again; the ledger would call it a phantom.
			r.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'gap', 'Lost', '{}')`)
			for statement := range strings.SplitSeq(tc.move, "; ") {
				if strings.Contains(statement, "$1") {
					r.db.Exec(t, statement, r.slot)
				} else {
					r.db.Exec(t, statement)
				}
			}
			for range 2 { // it does not go away by itself
				r.refused(t, tc.code, r.slot, before.EndLSN.String(), tc.says)
			}
			r.goesOn(t, "--accept-gap")
			if p := r.recorded(t); p.EndLSN <= before.EndLSN {
				t.Errorf("recorded %s after the gap, %s before", p.EndLSN, before.EndLSN)
			}
			r.goesOn(t) // the gap was accepted for good
			r.settle(t, 0)
		})
	}
}

// Without a position topic nothing is kept, and that is said.
func TestNoPositionTopic(t *testing.T) {
	r := newRig(t, pgtest.Database(t), kafkatest.Broker(t))
	process := start(t, "run", "-c", r.config, "--set", "position_topic=")
	process.logged(t, "streaming")
	r.load.run(t.Context(), t, 500)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	if out := process.stderr.String(); strings.Count(out, "position_topic is empty") != 1 {
		t.Errorf("the warning is missing:\n%s", out)
	}
	for _, rec := range r.kafka.ReadAll(t, relay.PositionTopic) {
		if string(rec.Key) == r.slot {
			t.Errorf("a record: %s", rec.Value)
		}
	}
	r.settle(t, 0)
}

// A server that was restored from an older copy of its files has the slot, but not what was
// delivered since.
func TestRestoredCopy(t *testing.T) {
	r, pg, _ := ownRig(t)
	process := r.run(t)
	r.load.run(t.Context(), t, 500)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	must(t, pg.Shutdown(t.Context()))
	copied := pg.DataDir() + ".copy"
	copyDir(t, pg.DataDir(), copied)
	must(t, pg.Restart(t.Context()))
	process = r.run(t)
	r.load.run(t.Context(), t, 5000)
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	last := r.recorded(t)

	must(t, pg.Kill(t.Context()))
	must(t, os.RemoveAll(pg.DataDir()))
	must(t, os.Rename(copied, pg.DataDir()))
	must(t, pg.Restart(t.Context()))
	r.refused(t, 15, last.EndLSN.String(), "older copy", "--accept-gap")
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// When relay and server crash together the slot comes back where it was last saved; the
// record keeps what is repeated to the last second.
func TestBothCrash(t *testing.T) {
	r, pg, _ := ownRig(t)
	r.db.Exec(t, `ALTER SYSTEM SET checkpoint_timeout = '1h'`)
	r.db.Exec(t, `SELECT pg_reload_conf()`)
	process := r.run(t)
	var written int
	underLoad(t, r, func() {
		time.Sleep(4 * time.Second)
		process.kill(t)
		must(t, pg.Kill(t.Context()))
		written = r.load.total()
		must(t, pg.Restart(t.Context()))
		process = r.run(t)
		r.progress(t)
	})
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	r.settle(t, written/2)
}
