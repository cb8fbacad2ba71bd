package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// If the relay is killed in a very large transaction, the next start continues at the position record
// and resends only what was delivered after it. If it is asked to stop in the transaction, it stops at
// the end of drain_timeout, or of the transaction if that comes first.
func TestEndInGiantTransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a transaction of many rows")
	rows := rig.Rows(t)
	r, _ := rig.NewOwn(t)
	const window = 500
	direct := r.Config
	r.Through(t, "", `{"type": "bandwidth", "attributes": {"rate": 1000}}`) // kB/s: there is time to end it
	run := func(drainTimeout string) *rig.Process {
		process := rig.Start(t, "run", "-c", r.Config, "--set", "drain_timeout="+drainTimeout, "--set", fmt.Sprint("sink.kafka.window.records=", window))
		process.Logged(t, "streaming")
		return process
	}
	process := run("25s")
	r.Load.Giant(t.Context(), t, rows)
	var repeated int

	received(t, r, rows/10)
	wait.For(t, "the open transaction in the position record", func() bool {
		p := rig.Recorded(t, r.Kafka, r.Slot)
		return p != nil && p.Open.Rows > 0
	})
	process.Flat(t)
	process.Kill(t)
	repeated += behindRecord(t, r, rows) + window // the broker may append requests on the wire after the relay has ended

	process = run("100ms")
	received(t, r, rows/5)
	process.Signal(t, syscall.SIGTERM)
	process.Fails(t, exit.OK, "before every record was acknowledged")
	repeated += behindRecord(t, r, rows) + window

	r.Config = direct
	process = run("25s")
	received(t, r, rows/10)
	process.Terminate(t)
	r.Arrived(t)
	process = r.Run(t)
	r.Confirmed(t)
	process.Terminate(t)
	r.Settle(t, repeated)
}

// received waits until n more records have come, of which each may repeat an earlier one.
func received(t *testing.T, r *rig.Rig, n int) {
	t.Helper()
	want := r.Collector.Count() + int64(n)
	wait.For(t, fmt.Sprintf("%d records", n), func() bool { return r.Collector.Count() >= want })
}

// behindRecord waits until no more events arrive, and returns how many events of the transaction have
// arrived after the position record. They must be fewer than rows, and fewer than all that arrived.
func behindRecord(t *testing.T, r *rig.Rig, rows int) int {
	t.Helper()
	rig.Must(t, r.Collector.CatchUp(t.Context()))
	n, recorded := r.Ledger.Counts().Events, int(r.Recorded(t).Open.Rows)
	if t.Logf("it ended behind event %d, the record says %d", n, recorded); n >= rows || recorded == 0 || recorded > n {
		t.Errorf("it ended after event %d of %d, the record says %d", n, rows, recorded)
	}
	return n - recorded
}

// A few events among very much of other tables, in one transaction, cost no memory.
func TestEventsAmongOtherTables(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it measures memory")
	r, _ := rig.NewOwn(t)
	r.DB.Exec(t, `CREATE TABLE neighbour (n int, pad text)`)
	process := r.Run(t)
	r.Load.Transaction(t.Context(), t, []string{"among"}, func(tx pgx.Tx, put func(n int) error) error {
		for range 10 { // 20 MB each
			if _, err := tx.Exec(t.Context(), `INSERT INTO neighbour SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n`); err != nil {
				return err
			}
			if err := put(1); err != nil {
				return err
			}
		}
		return nil
	})
	r.Arrived(t)
	r.Confirmed(t)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// What other applications write to the log as logical messages is none of the relay's
// business, of whatever size: not in a transaction with events, and not by itself, nor with the relay's
// own prefix.
func TestLogicalMessagesOfOthers(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it writes a backlog of messages")
	r, _ := rig.NewOwn(t) // other tests that create a slot would wait for the transaction
	process := r.Run(t)
	const emit = `SELECT pg_logical_emit_message($1, $2, repeat('x', $3))`
	r.Load.Transaction(t.Context(), t, []string{"among"}, func(tx pgx.Tx, put func(n int) error) error {
		for _, size := range []int{10, 20 << 20, 100 << 20} {
			if err := put(5); err != nil {
				return err
			}
			for _, prefix := range []string{"billing", catalog.MessagePrefix + "-audit", catalog.MessagePrefix} {
				if _, err := tx.Exec(t.Context(), emit, size > 1000, prefix, size); err != nil {
					return err
				}
			}
		}
		return put(5)
	})
	r.DB.Exec(t, emit, false, "billing", 100<<20)
	r.DB.Exec(t, emit, false, catalog.MessagePrefix, 100<<20)
	r.Deliver(t, 100)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

var advanceStatement = regexp.MustCompile(`SELECT pg_replication_slot_advance\('[a-z0-9_]+', '[0-9A-F/]+'::pg_lsn \+ 1\)`)

// A row that is too large, for the relay or for the server, ends the relay before it is in
// memory, whatever on_bad_record says. What the relay then says passes over its transaction
// and nothing else.
func TestRowThatCannotBeStreamed(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a row of 1 GB")
	type unstreamed struct{ payload, value, policy, says string }
	rows := map[string]unstreamed{
		"too large for the relay, stop":        {"jsonb", `to_jsonb(repeat('x', 100 << 20))`, "stop", "exceeds the limit of"},
		"too large for the relay, dead-letter": {"jsonb", `to_jsonb(repeat('x', 100 << 20))`, "dead-letter", "exceeds the limit of"},
	}
	if rig.EnvInt(t, "OUTBOX_TEST_HUGE", 0) > 0 {
		rows["too large for the server"] = unstreamed{"bytea", `repeat('x', 600 << 20)::bytea`, "dead-letter", "invalid memory alloc request size"}
	}
	for name, tc := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnstreamable(t, tc.payload)
			process := u.start(t, "--set", "on_bad_record="+tc.policy, "--set", "dead_letter_topic="+u.dead)
			process.Logged(t, "streaming")
			u.insert(t, "before", `NULL`)
			u.db.Exec(t, `BEGIN; `+u.row("first of its transaction", `NULL`)+`; `+u.row("large", tc.value)+`; `+u.row("last of its transaction", `NULL`)+`; COMMIT`)
			u.insert(t, "after", `NULL`)

			peak := watchPeak(t, process)
			process.Fails(t, exit.BadRecord, tc.says, "whatever on_bad_record is", "--accept-gap")
			if m := <-peak; m > rig.MaxResident {
				t.Errorf("peak resident memory was %d MB, it may be %d MB", m, rig.MaxResident)
			} else {
				t.Logf("peak resident memory %d MB", m)
			}
			pass := advanceStatement.FindString(process.Stderr.String())
			if pass == "" {
				t.Fatalf("how to pass is not said:\n%s", rig.Tail(process.Stderr.String(), 20))
			}
			u.db.Exec(t, pass)
			process = u.start(t, "--accept-gap")
			u.kafka.ReadN(t, 3, u.topic)
			process.Terminate(t)
			if got, want := fmt.Sprint(u.delivered(t)), "[before first of its transaction after]"; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
			if n := len(u.kafka.ReadAll(t, u.dead)); n > 0 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}

// An unstreamable is a source with a row in it that cannot be streamed.
type unstreamable struct {
	db                  *pgtest.DB
	kafka               *kafkatest.Cluster
	topic, dead, config string
}

func newUnstreamable(t *testing.T, payload string) *unstreamable {
	t.Helper()
	u := &unstreamable{db: pgtest.Database(t), kafka: kafkatest.Broker(t)}
	u.topic, u.dead = u.kafka.Topic(t, 1, nil), u.kafka.Topic(t, 1, nil)
	u.db.Exec(t, `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text, payload `+payload+`)`)
	u.config = rig.WriteConfig(t, u.db.DSN, u.kafka.Addrs[0], u.db.Name, u.topic, "")
	return u
}

func (u *unstreamable) start(t *testing.T, args ...string) *rig.Process {
	t.Helper()
	return rig.Start(t, append([]string{"run", "-c", u.config}, args...)...)
}

func (u *unstreamable) row(id, payload string) string {
	return fmt.Sprintf(`INSERT INTO outbox VALUES ('%s', 'order', 'k', 'T', %s)`, id, payload)
}

func (u *unstreamable) insert(t *testing.T, id, payload string) {
	t.Helper()
	u.db.Exec(t, u.row(id, payload))
}

// delivered returns the ids of the records, in order.
func (u *unstreamable) delivered(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, rec := range u.kafka.ReadAll(t, u.topic) {
		ids = append(ids, rig.Header(rec, "id"))
	}
	return ids
}

// watchPeak returns a channel that gets the highest resident memory, in MB, when the process has
// ended.
func watchPeak(t *testing.T, r *rig.Process) <-chan int {
	t.Helper()
	peak := make(chan int, 1)
	go func() { // ends with the process
		highest := 0
		for {
			if m, err := r.Resident(); err == nil {
				highest = max(highest, m.Peak)
			}
			select {
			case <-r.Done:
				peak <- highest
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return peak
}

// Whatever is rolled back, by itself, to a savepoint, in an exception handler or after it was
// prepared, in small pieces or large ones, is never seen; and what is prepared comes when it
// is committed.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	const (
		bad  = `INSERT INTO outbox SELECT n, 'TOPIC', 'k', 'RolledBack', '{}' FROM generate_series(1000000, 1000000 + %d) n`
		good = `INSERT INTO outbox VALUES (%d, 'TOPIC', 'k', 'T', '{}')`
	)
	phantoms := func(n int) string { return fmt.Sprintf(bad, n-1) }
	row := func(n int) string { return fmt.Sprintf(good, n) }
	pgtest.OldestAndNewest(t, func(t *testing.T, shared *pgserver.Server) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir}) // a slot is not created during a long transaction
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns).run(t)
		one, other := w.db.Name+"_1", w.db.Name+"_2"
		for _, statement := range []string{
			row(1),
			`DO $$ BEGIN FOR i IN 1..3000 LOOP ` + phantoms(1) + `; ROLLBACK; END LOOP; END $$`,
			`DO $$ BEGIN ` + row(2) + `; FOR i IN 1..1000 LOOP
				BEGIN ` + phantoms(1) + `; RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END;
			END LOOP; ` + row(3) + `; END $$`,
			`BEGIN; ` + phantoms(60_000) + `; ROLLBACK`, // more than logical_decoding_work_mem
			`BEGIN; ` + row(4) + `; SAVEPOINT s; ` + phantoms(60_000) + `; ROLLBACK TO s; ` + row(5) + `; COMMIT`,
			`BEGIN; SAVEPOINT a; SAVEPOINT b; ` + phantoms(10) + `; RELEASE b; ROLLBACK TO a; ` + row(6) + `; COMMIT`,
			`BEGIN; ` + phantoms(10) + `; PREPARE TRANSACTION '` + one + `'`,
			`BEGIN; ` + row(8) + `; PREPARE TRANSACTION '` + other + `'`,
			row(7),
			`ROLLBACK PREPARED '` + one + `'`,
			`COMMIT PREPARED '` + other + `'`,
			row(9),
		} {
			w.db.Exec(t, strings.ReplaceAll(statement, "TOPIC", w.topic))
		}
		w.kafka.ReadN(t, 9, w.topic)
		w.stop()
		w.fails(t, exit.OK)
		var ids []string
		for _, rec := range w.kafka.ReadAll(t, w.topic) {
			ids = append(ids, rig.Header(rec, "id"))
		}
		if got, want := fmt.Sprint(ids), "[1 2 3 4 5 6 7 8 9]"; got != want {
			t.Errorf("delivered %s, want %s", got, want)
		}
	})
}

// Several tables in one publication, with different columns: what a transaction writes to
// them comes in the order of its statements, also where it deletes it again.
func TestSeveralTables(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns+`; CREATE SCHEMA "Billing";
			CREATE TABLE "Billing"."Events" (payload text, extra int, aggregateid text, type text, id int, aggregatetype text)`)
		w.cfg.Tables = []string{"outbox", `"Billing"."Events"`}
		w.run(t)
		const insert = `INSERT INTO %s (id, aggregatetype, aggregateid, type, payload) VALUES (%d, '%s', 'k', 'T', '{}')`
		n := 0
		for range 20 {
			statements := []string{"BEGIN"}
			for range 3 {
				for _, table := range []string{"outbox", `"Billing"."Events"`} {
					statements = append(statements, fmt.Sprintf(insert, table, n, w.topic))
					n++
				}
			}
			w.db.Exec(t, strings.Join(append(statements, `DELETE FROM outbox`, `DELETE FROM "Billing"."Events" WHERE id % 3 > 0`, "COMMIT"), "; "))
		}
		w.kafka.ReadN(t, n, w.topic)
		w.stop()
		w.fails(t, exit.OK)
		records := w.kafka.ReadAll(t, w.topic)
		if len(records) != n {
			t.Errorf("%d records of %d rows", len(records), n)
		}
		for i, rec := range records {
			if got := rig.Header(rec, "id"); got != fmt.Sprint(i) {
				t.Fatalf("record %d is of row %s", i, got)
			}
		}
		if left := pgtest.QueryRow[int](t, w.db, `SELECT count(*)::int FROM outbox`); left != 0 {
			t.Errorf("%d rows are left in the table", left)
		}
	})
}
