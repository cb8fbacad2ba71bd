package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The relay streams from a slot of a standby server (Postgres 16 and later) that is promoted meanwhile. No position is recorded
// under a timeline to which it does not belong, so the next start continues, and a refill drops no healthy slot.
func TestPromotedWhileItStreams(t *testing.T) {
	pgtest.EachInstall(t, func(t *testing.T, install pgserver.Install) {
		if install.Major < 16 {
			return // a standby server has no logical slots
		}
		for name, more := range map[string]string{"stop": "", "refill": "source.on_slot_loss: refill"} {
			t.Run(name, func(t *testing.T) { promoteWhileItStreams(t, install, more) })
		}
	})
}

func promoteWhileItStreams(t *testing.T, install pgserver.Install, more string) {
	t.Helper()
	primary := pgtest.Start(t, pgserver.Config{BinDir: install.BinDir})
	db := pgtest.DatabaseOn(t, primary)
	server := pgtest.Standby(t, primary, primary.Addr(), db.Name, nil)
	r := rig.NewOn(t, db, kafkatest.Broker(t)) // writers write to the primary
	r.Collector.Stop()
	db.Exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox`)
	standby := &pgtest.DB{Name: db.Name, Server: server, DSN: server.DSN(db.Name)}
	rows := 0
	insert := func(db *pgtest.DB, n int) {
		t.Helper()
		rows += n
		db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', 'k', 'T', '{}' FROM generate_series(1, $1::int)`, n)
	}
	createOnStandby(t, db, func() { standby.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.Slot) })
	r.Config = rig.WriteConfig(t, standby.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic, more)
	arrived := func() {
		t.Helper()
		wait.For(t, fmt.Sprint(rows, " rows"), func() bool {
			ids := make(map[string]bool)
			for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
				for _, h := range rec.Headers {
					if h.Key == "id" {
						ids[string(h.Value)] = true
					}
				}
			}
			return len(ids) == rows
		})
	}
	process := r.Run(t)
	insert(db, 100)
	arrived()
	rig.Must(t, primary.Kill(t.Context()))
	standby.Exec(t, `SELECT pg_promote()`)
	for range 20 {
		insert(standby, 10)
	}
	arrived()
	last := pgtest.QueryRow[string](t, standby, `SELECT pg_current_wal_lsn()::text`)
	wait.For(t, "the position of the last row to be confirmed", func() bool {
		return process.Ended() || pgtest.QueryRow[bool](t, standby, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots`, last)
	})
	process.Terminate(t)

	process = rig.Start(t, "run", "-c", r.Config)
	wait.For(t, "the next start", func() bool { return process.Ended() || process.Times("msg=streaming") > 0 })
	insert(standby, 1)
	if process.Ended() {
		t.Fatalf("exit code %d, want a start that continues\n%s", process.Exit(t), rig.Tail(process.Stderr.String(), 12))
	}
	arrived()
	if process.Times("created again") > 0 {
		t.Errorf("a healthy slot was dropped and created again:\n%s", rig.Tail(process.Stderr.String(), 12))
	}
	process.Terminate(t)
}

// createOnStandby calls create, which creates a slot on a standby of primary: that waits for a record of running transactions.
func createOnStandby(t *testing.T, primary *pgtest.DB, create func()) {
	t.Helper()
	created := make(chan struct{})
	go func() {
		defer close(created)
		create()
	}()
	wait.For(t, "the slot", func() bool {
		primary.Exec(t, `SELECT pg_log_standby_snapshot()`)
		select {
		case <-created:
			return true
		default:
			return false
		}
	})
}

// A relay of a standby server, by mistake with the name and slot of that of the primary, sends nothing: else both would shut out each other
// and send rows twice. That of the primary takes the name back.
func TestTheSameNameOnAStandby(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it starts standby servers")
	pgtest.NewestTwo(t, sameNameOnAStandby)
}

func sameNameOnAStandby(t *testing.T, srv *pgserver.Server) {
	t.Helper()
	if srv.Install().Major < 16 {
		return // a standby server has no logical slots
	}
	primary := pgtest.Start(t, pgserver.Config{BinDir: srv.Install().BinDir})
	db := pgtest.DatabaseOn(t, primary)
	server := pgtest.Standby(t, primary, primary.Addr(), db.Name, nil)
	r := rig.NewOn(t, db, kafkatest.Fake(t).Cluster)
	dsn := server.DSN(db.Name)
	elsewhere := rig.WriteConfig(t, dsn, r.Kafka.Addrs[0], r.Slot, r.Topic, "startup_timeout: 3s")
	process := r.Run(t)
	insertNumbers(t, r, 10)
	r.Confirmed(t)
	createOnStandby(t, db, func() {
		if out, code := rig.Command(t, "setup", "-c", elsewhere); code != 0 || !strings.Contains(out, "this server is a standby") {
			t.Errorf("setup: exit code %d\n%s", code, out)
		}
	})
	rig.Start(t, "run", "-c", elsewhere).Fails(t, 10, "is of its primary", "a name of its own")
	insertNumbers(t, r, 10)
	r.Confirmed(t)
	if n := process.Times("fenced"); n > 0 {
		t.Errorf("the relay of the primary was fenced %d times", n)
	}
	process.Terminate(t)

	wrong := rig.Start(t, "run", "-c", elsewhere, "--accept-gap")
	wrong.Logged(t, "msg=streaming")
	process = r.Run(t)
	insertNumbers(t, r, 10)
	r.Confirmed(t)
	wait.For(t, "the relay of the standby to be shut out", func() bool { return strings.Contains(wrong.Stderr.String(), "is of its primary") })
	wrong.Terminate(t)
	process.Terminate(t)
}
