package crash

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A server that was restored from an older copy of its files has the slot, but at an older position. The
// relay detects that, also after services have written so much to the copy that its WAL is longer than that of the record.
// If the copy is to stay, the relay sends every row of it.
func TestRestoredCopy(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restores a copy of a server")
	r, pg := rig.NewOwn(t)
	copied := deliverAndCopy(t, r, pg)
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 5000)
	r.Arrived(t)
	process.Terminate(t)
	last := r.Recorded(t)

	restore(t, pg, copied)
	r.Refused(t, 15, last.EndLSN.String(), "older copy", "--accept-gap")
	outrun(t, r, last.EndLSN)
	for range 2 {
		r.Refused(t, 15, last.EndLSN.String(), "older copy, such as a restored backup, with rows of its own", "starts at the slot's own position")
	}
	r.GoesOn(t, "--accept-gap")
	r.GoesOn(t)
}

// deliverAndCopy delivers rows and stops the relay, and returns a copy of the server's files from then.
func deliverAndCopy(t *testing.T, r *rig.Rig, pg *pgserver.Server) (copied string) {
	t.Helper()
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 500)
	r.Arrived(t)
	r.AwaitSnapshotOfAll(t)
	process.Terminate(t)
	rig.Must(t, pg.Shutdown(t.Context()))
	copied = pg.DataDir() + ".copy"
	rig.CopyDir(t, pg.DataDir(), copied)
	rig.Must(t, pg.Restart(t.Context()))
	return copied
}

// restore starts the server with a copy of its files.
func restore(t *testing.T, pg *pgserver.Server, copied string) {
	t.Helper()
	rig.Must(t, pg.Kill(t.Context()))
	rig.Must(t, os.RemoveAll(pg.DataDir()))
	rig.Must(t, os.Rename(copied, pg.DataDir()))
	rig.Must(t, pg.Restart(t.Context()))
}

// outrun writes rows until the WAL of the server is longer than that of the original was.
func outrun(t *testing.T, r *rig.Rig, original pglogrepl.LSN) {
	t.Helper()
	for pgtest.QueryRow[bool](t, r.DB, "SELECT pg_current_wal_flush_lsn() <= $1::pg_lsn", original.String()) {
		r.Load.Run(t.Context(), t, 1000)
	}
}

// A neighbour is added to the publication, or dropped from it, while a transaction that has written to it is open. Postgres 15 to 18 resend
// that transaction or not, unlike the first time. The relay does not take that for another server.
func TestNeighbourOfAnOpenTransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a server for each case")
	for name, tables := range map[string]string{"ADD": "outbox", "DROP": "outbox, neighbour"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := rig.NewOwn(t)
			r.DB.Exec(t, `CREATE TABLE neighbour (v text)`)
			r.DB.Exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE `+tables+` WITH (publish = 'insert', publish_via_partition_root = true)`)
			r.DB.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.Slot)
			process := r.Run(t)
			r.Deliver(t, 50)
			r.AwaitSnapshotOfAll(t)

			tx, err := r.Connect(t).Begin(t.Context())
			rig.Must(t, err)
			_, err = tx.Exec(t.Context(), `INSERT INTO neighbour VALUES ('long')`)
			rig.Must(t, err)
			r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` `+name+` TABLE neighbour`)
			r.DB.Exec(t, `INSERT INTO neighbour VALUES ('short')`)
			r.Confirmed(t)
			rig.Must(t, tx.Commit(t.Context()))
			end := pgtest.QueryRow[string](t, r.DB, `SELECT pg_current_wal_flush_lsn()::text`)
			wait.For(t, "the record to be ahead of the slot", func() bool {
				return pgtest.QueryRow[bool](t, r.DB, `SELECT $1::pg_lsn >= $2::pg_lsn`, r.Recorded(t).EndLSN.String(), end)
			})
			r.DB.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots`)
			r.Deliver(t, 50)
			process.Terminate(t)
		})
	}
}

// If relay and server crash together, the slot returns to its last saved position. The position record limits what the
// relay reads again to the last second, and the relay recognizes what Kafka has of it.
func TestBothCrash(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restarts a server")
	r, pg := rig.NewOwn(t)
	r.DB.Exec(t, `ALTER SYSTEM SET checkpoint_timeout = '1h'`)
	r.DB.Exec(t, `SELECT pg_reload_conf()`)
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		time.Sleep(4 * time.Second)
		process.Kill(t)
		rig.Must(t, pg.Kill(t.Context()))
		rig.Must(t, pg.Restart(t.Context()))
		process = r.Run(t)
		r.Progress(t)
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
