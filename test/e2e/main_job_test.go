package e2e

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestMainJob runs the main job, with transactions of 1 to 50 rows, half of which roll back. A full run has the full size
// on the newest server only. Every committed row arrives exactly once, unaltered and in order per key, and the slot
// advances. While the outbox is idle, writes to another table do not make Postgres retain WAL for the slot.
func TestMainJob(t *testing.T) {
	t.Parallel()
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		rows := rig.Rows(t)
		if !need.Full() {
			rows /= 4
		} else if r.DB.Server.Install().Major < pgserver.Newest {
			rows /= 5
		}
		process := r.Run(t)
		r.Deliver(t, rows)
		t.Logf("%d events, resident memory %+v", r.Load.Total(), process.Memory(t))
		r.Settle(t, 0)
		idleBesideBusy(t, r)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// idleBesideBusy writes to another table and measures the WAL that Postgres retains for the slot.
func idleBesideBusy(t *testing.T, r *rig.Rig) {
	t.Helper()
	conn := r.Connect(t)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE neighbour (n int, pad text)`); err != nil {
		t.Fatal(err)
	}
	const held = `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1`
	peak := int64(0)
	for range 40 { // about 50 MB of WAL
		if _, err := conn.Exec(t.Context(), `INSERT INTO neighbour SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) n`); err != nil {
			t.Fatal(err)
		}
		peak = max(peak, rig.Ask[int64](t, conn, held, r.Slot))
	}
	r.Confirmed(t)
	// Postgres advances restart_lsn at the next running-transactions record, which a checkpoint writes.
	var now int64
	wait.For(t, "the held WAL to fall", func() bool {
		if _, err := conn.Exec(t.Context(), `CHECKPOINT`); err != nil {
			t.Fatal(err)
		}
		now = rig.Ask[int64](t, conn, held, r.Slot)
		return now < peak/4
	})
	t.Logf("busy neighbour: the slot held up to %.1f MB of WAL, then %.1f MB", float64(peak)/1e6, float64(now)/1e6)
}

// One giant transaction arrives, and the relay needs no more memory for it than for small ones.
func TestGiantTransaction(t *testing.T) {
	t.Parallel()
	var r *rig.Rig
	rows := 5000
	if need.Full() {
		r, _ = rig.NewOwn(t) // no other slot can be created during the transaction
		rows = rig.Rows(t)
	} else {
		r = rig.New(t)
	}
	process := r.Run(t)
	r.Load.Giant(t.Context(), t, rows)
	r.Arrived(t)
	r.Confirmed(t)
	if need.Full() {
		process.Flat(t)
	}
	process.Terminate(t)
	r.Settle(t, 0)
}
