package test

import (
	"testing"
	"time"
)

// maxResident is what the relay may occupy, in MB, whatever it is asked to do.
const maxResident = 40

// flat fails the test if the relay has ever occupied more than it may.
func (r *relayProcess) flat(t *testing.T) {
	t.Helper()
	m := r.memory(t)
	t.Logf("resident memory %+v MB", m)
	if m.peak > maxResident {
		t.Errorf("peak resident memory was %d MB, it may be %d MB", m.peak, maxResident)
	}
}

// The main job at full size: transactions of 1 to 50 rows, half of them rolled back. Every
// committed row arrives exactly once, in order per key, with its bytes; the slot follows;
// and when the outbox is idle, a busy neighbour does not make the server keep WAL.
func TestMainJob(t *testing.T) {
	rows := envInt(t, "OUTBOX_TEST_ROWS", 100_000)
	onEachServer(t, func(t *testing.T, r *rig) {
		process := r.run(t)
		began := time.Now()
		r.load.run(t.Context(), t, rows)
		written := time.Since(began)
		r.arrived(t, time.Minute)
		t.Logf("%d events written in %v, arrived %v later, resident memory %+v",
			r.load.total(), written.Round(time.Millisecond), (time.Since(began) - written).Round(time.Millisecond), process.memory(t))
		r.confirmed(t, 2*time.Second)
		r.settle(t, 0)
		idleBesideBusy(t, r)
		process.terminate(t)
		r.settle(t, 0)
	})
}

// idleBesideBusy writes to another table and watches the WAL the slot holds back.
func idleBesideBusy(t *testing.T, r *rig) {
	t.Helper()
	conn := r.connect(t)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE neighbour (n int, pad text)`); err != nil {
		t.Fatal(err)
	}
	const held = `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1`
	peak := int64(0)
	for range 40 { // about 50 MB of WAL
		if _, err := conn.Exec(t.Context(), `INSERT INTO neighbour SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) n`); err != nil {
			t.Fatal(err)
		}
		peak = max(peak, ask[int64](t, conn, held, r.slot))
	}
	r.confirmed(t, 2*time.Second)
	// restart_lsn follows at the next running-transactions records, which a checkpoint writes.
	var now int64
	waitFor(t, 40*time.Second, "the held WAL to fall", func() bool {
		if _, err := conn.Exec(t.Context(), `CHECKPOINT`); err != nil {
			t.Fatal(err)
		}
		now = ask[int64](t, conn, held, r.slot)
		return now < peak/4
	})
	t.Logf("busy neighbour: the slot held up to %.1f MB of WAL, then %.1f MB", float64(peak)/1e6, float64(now)/1e6)
}

// One transaction of very many rows runs in the same memory as small ones.
func TestGiantTransaction(t *testing.T) {
	rows := envInt(t, "OUTBOX_TEST_ROWS", 100_000)
	onEachServer(t, func(t *testing.T, r *rig) {
		process := r.run(t)
		began := time.Now()
		r.load.giant(t.Context(), t, rows)
		written := time.Since(began)
		r.arrived(t, 2*time.Minute)
		t.Logf("one transaction of %d events written in %v, arrived %v after its commit", rows,
			written.Round(time.Millisecond), (time.Since(began) - written).Round(time.Millisecond))
		r.confirmed(t, 2*time.Second)
		process.flat(t)
		process.terminate(t)
		r.settle(t, 0)
	})
}
