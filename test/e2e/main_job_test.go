package e2e

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestMainJob runs the main job, with transactions of 1 to 50 rows, half of which roll back. A full run has the full size
// on the newest server only. Every committed row arrives exactly once, unaltered and in order per key, and the slot
// advances. While the outbox is idle, writes to another table do not make Postgres retain WAL for the slot.
func TestMainJob(t *testing.T) {
	t.Parallel()
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		rows := rig.Rows(t)
		if need.Full() && r.DB.Server.Install().Major < pgserver.Newest {
			rows /= 5
		}
		process := r.Run(t)
		began := time.Now()
		r.Load.Run(t.Context(), t, rows)
		written := time.Since(began)
		r.Arrived(t, time.Minute)
		t.Logf("%d events written in %v, arrived %v later, resident memory %+v",
			r.Load.Total(), written.Round(time.Millisecond), (time.Since(began) - written).Round(time.Millisecond), process.Memory(t))
		r.Confirmed(t, 2*time.Second+rig.Slack)
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
	r.Confirmed(t, 2*time.Second+rig.Slack)
	// Postgres advances restart_lsn at the next running-transactions record, which a checkpoint writes.
	var now int64
	rig.WaitFor(t, 40*time.Second, "the held WAL to fall", func() bool {
		if _, err := conn.Exec(t.Context(), `CHECKPOINT`); err != nil {
			t.Fatal(err)
		}
		now = rig.Ask[int64](t, conn, held, r.Slot)
		return now < peak/4
	})
	t.Logf("busy neighbour: the slot held up to %.1f MB of WAL, then %.1f MB", float64(peak)/1e6, float64(now)/1e6)
}

// The relay needs no more memory for one giant transaction than for small ones.
func TestGiantTransaction(t *testing.T) {
	t.Parallel()
	rows := rig.Rows(t)
	r, _ := rig.NewOwn(t)
	process := r.Run(t)
	began := time.Now()
	r.Load.Giant(t.Context(), t, rows)
	written := time.Since(began)
	r.Arrived(t, 2*time.Minute)
	t.Logf("one transaction of %d events written in %v, arrived %v after its commit", rows,
		written.Round(time.Millisecond), (time.Since(began) - written).Round(time.Millisecond))
	r.Confirmed(t, 2*time.Second+rig.Slack)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
