package e2e

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// runRecover runs the verb to its end and demands its exit code and what it prints.
func runRecover(t *testing.T, r *rig.Rig, code int, flags []string, says ...string) string {
	t.Helper()
	out, got := rig.Command(t, append([]string{"recover", "-c", r.Config}, flags...)...)
	if got != code {
		t.Fatalf("recover %v: exit code %d, want %d\n%s", flags, got, code, rig.Tail(out, 30))
	}
	for _, want := range says {
		if !strings.Contains(out, want) {
			t.Errorf("recover %v does not say %q:\n%s", flags, want, rig.Tail(out, 30))
		}
	}
	return out
}

// dropSlot drops the rig's slot, also while a relay streams from it.
func dropSlot(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.DB.Exec(t, rig.DropSlot(r.Slot))
}

// onNewest runs f as a subtest for the two newest versions, each with a server of its own: a new slot waits for
// every open transaction of the server.
func onNewest(t *testing.T, f func(t *testing.T, r *rig.Rig)) {
	t.Helper()
	pgtest.NewestTwo(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})
		f(t, rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t)))
	})
}

// deliverAndStop runs the relay, with args, until it has delivered events and recorded a snapshot, and stops it.
func deliverAndStop(t *testing.T, r *rig.Rig, events int, args ...string) {
	t.Helper()
	process := r.Run(t, args...)
	r.Deliver(t, events)
	r.AwaitSnapshot(t)
	process.Terminate(t)
}

// refilled returns the ids of the refilled records, in the order of the topic's partitions.
func refilled(t *testing.T, r *rig.Rig) (ids []string) {
	t.Helper()
	for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
		if rig.Header(rec, "refilled") == "true" {
			ids = append(ids, rig.Header(rec, "id"))
		}
	}
	return ids
}

// settleRefill demands that everything has arrived once, in order, and that the relay continues without a gap.
func settleRefill(t *testing.T, r *rig.Rig) {
	t.Helper()
	if n := len(refilled(t, r)); n == 0 {
		t.Error("no record is refilled")
	}
	if p := r.Recorded(t); p.Refill != nil || len(p.Snapshots) == 0 {
		t.Errorf("recorded is %+v", p)
	}
	r.Settle(t, 0)
}

// A slot is dropped under load, while the relay streams from it. Recover resends what the slot had not
// delivered, and the next run continues without a gap, while rows are written all the time.
func TestRecoverDroppedSlot(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t)
		runRecover(t, r, exit.SlotInUse, nil, "stop that relay first")
		rig.UnderLoad(t, r, func() {
			r.Progress(t)
			r.AwaitSnapshot(t)
			dropSlot(t, r)
			process.Fails(t, exit.SlotLost, r.Slot, "does not exist", "outbox-cdc recover")
			before := r.Recorded(t)
			runRecover(t, r, exit.OK, []string{"--dry-run"}, "Position record: "+before.EndLSN.String(), "does not exist", "would be sent to "+r.Topic)
			if n := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM pg_replication_slots`); n > 0 || len(refilled(t, r)) > 0 {
				t.Errorf("a dry run leaves %d slots and %d records", n, len(refilled(t, r)))
			}
			runRecover(t, r, exit.OK, nil, "rows of public.outbox", "Refilled: ")
			runRecover(t, r, exit.OK, nil, "Nothing to recover")
			process = r.Run(t)
			r.Progress(t)
		})
		r.Arrived(t)
		r.Confirmed(t)
		settleRefill(t, r)
		process.Terminate(t)
	})
}

// Somebody has created the slot again and skipped rows: recover refills them, too.
func TestRecoverRecreatedSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		deliverAndStop(t, r, 100)
		dropSlot(t, r)
		r.Load.Run(t.Context(), t, 100)
		if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
			t.Fatalf("setup: exit code %d\n%s", code, out)
		}
		r.Load.Run(t.Context(), t, 100)
		r.Refused(t, exit.Continuity, "re-created", "outbox-cdc recover")
		runRecover(t, r, exit.OK, nil, "re-created", "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}

// A refill that is killed or stopped continues: until it is done, nothing else is sent, and rows that are
// acknowledged and recorded are not sent again.
func TestRecoverInterrupted(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills a refill at each step")
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			onNewest(t, func(t *testing.T, r *rig.Rig) {
				deliverAndStop(t, r, 100)
				dropSlot(t, r)
				r.Load.Giant(t.Context(), t, 200_000)
				first := rig.Start(t, "recover", "-c", r.Config, "--set", "sink.kafka.window.records=20") // so that it takes long enough
				first.Logged(t, "refill started")
				wait.For(t, "acknowledged rows in the position record", func() bool { return r.Recorded(t).Open.Rows > 0 })
				first.Signal(t, end)
				first.Exit(t)
				record := r.Recorded(t)
				if record.Refill == nil || strings.Contains(first.Stderr.String(), "refill finished") {
					t.Fatal("the refill was finished before it could be interrupted")
				}
				r.Load.Run(t.Context(), t, 100)
				r.Refused(t, exit.Continuity, "refill", "outbox-cdc recover")
				saysUnfinished(t, "refill", "-c", r.Config, "--set", "source.on_slot_loss=refill")
				before := len(refilled(t, r))
				runRecover(t, r, exit.OK, nil, "was interrupted", "Refilled: ")
				r.GoesOn(t)
				t.Logf("%d rows were sent by the first, %d of them recorded", before, record.Open.Rows)
				settleRefill(t, r)
				if after := len(refilled(t, r)); after >= 200_000+before {
					t.Errorf("%d refilled records after %d by the first", after, before)
				}
			})
		})
	}
}

// A slot is lost before its first row was read. Recover sends all rows, each once.
func TestRecoverBeforeTheFirstRow(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t)
		wait.For(t, "a snapshot in the position record", func() bool { return len(r.Recorded(t).Snapshots) > 0 })
		process.Terminate(t)
		dropSlot(t, r)
		runRecover(t, r, exit.OK, []string{"--dry-run"}, "0 rows of public.outbox")
		r.Load.Transaction(t.Context(), t, []string{"first"}, func(_ pgx.Tx, put func(n int) error) error { return put(1) }) // not rolled back
		r.Load.Run(t.Context(), t, 100)
		runRecover(t, r, exit.OK, nil, "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}

// Recover selects all rows that the last recorded snapshot does not show. It says that Kafka has some of them already, and
// names the reason without the advice to run recover.
func TestRecoverRowsThatKafkaHas(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverDroppedSlot runs always")
	r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafkatest.Broker(t))
	process := r.Run(t)
	r.Deliver(t, 100)
	r.AwaitSnapshot(t)
	for {
		recorded := r.Recorded(t).Snapshots[0].EndLSN
		r.Deliver(t, 20)
		process.Kill(t)
		if r.Recorded(t).Snapshots[0].EndLSN == recorded {
			break
		}
		process = r.Run(t) // it has just recorded another snapshot
	}
	dropSlot(t, r)
	out := runRecover(t, r, exit.OK, nil, "; the broker had ")
	numbers := regexp.MustCompile(`(?s)\n  (\d+) rows? of .*Refilled: (\d+) records? sent .* had (\d+) rows? already`).FindStringSubmatch(out)
	if numbers == nil {
		t.Fatalf("recover does not say how many rows Kafka has:\n%s", out)
	}
	number := func(i int) int { n, _ := strconv.Atoi(numbers[i]); return n }
	if number(1) != number(2)+number(3) {
		t.Errorf("sent and found are not the rows that were selected:\n%s", out)
	}
	if said, _, _ := strings.Cut(out, "Missing: "); strings.Contains(said, "outbox-cdc recover") {
		t.Errorf("recover advises recover:\n%s", out)
	}
}

// settleRecovered recovers what has been lost and demands that the relay continues.
func settleRecovered(t *testing.T, r *rig.Rig, says string) {
	t.Helper()
	r.Load.Run(t.Context(), t, 100)
	r.Refused(t, exit.SlotLost, "invalidated", "outbox-cdc recover")
	runRecover(t, r, exit.OK, nil, says, "Refilled: ")
	r.GoesOn(t)
	settleRefill(t, r)
}

// Postgres invalidates the slot because it retains too much WAL, or because nobody has used it.
func TestRecoverInvalidatedSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it fills the WAL")
	for name, tc := range map[string]struct{ setting, value, says string }{
		"by size":     {"max_slot_wal_keep_size", "16MB", "is invalidated"},
		"by idleness": {"idle_replication_slot_timeout", "1s", "idle_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, map[string]string{tc.setting: tc.value}, func(t *testing.T, srv *pgserver.Server) {
				r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
				deliverAndStop(t, r, 100)
				r.Load.Run(t.Context(), t, 100)
				wait.For(t, "the slot to be invalidated", func() bool {
					r.DB.Exec(t, `SELECT pg_switch_wal()`)
					r.DB.Exec(t, `SELECT txid_current()`)
					r.DB.Exec(t, `CHECKPOINT`)
					<-time.After(50 * time.Millisecond)
					return pgtest.QueryRow[string](t, r.DB, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.Slot) == "lost"
				})
				settleRecovered(t, r, tc.says)
			})
		})
	}
}

// Kafka has not acknowledged rows when the slot is lost, and a transaction with a row of the same keys is
// open: recover waits for its end, and the keys keep their order.
func TestRecoverRowsInFlight(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	pgtest.NewestTwo(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), fake.Cluster)
		process := r.Run(t)
		r.Deliver(t, 100)
		r.AwaitSnapshot(t)
		fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
		keys := []string{"in-flight-1", "in-flight-2"}
		r.Load.Transaction(t.Context(), t, keys, func(_ pgx.Tx, put func(n int) error) error { return put(100) })
		rig.Must(t, fault.Wait(t.Context(), 1))
		var recovering *rig.Process
		r.Load.Transaction(t.Context(), t, keys, func(_ pgx.Tx, put func(n int) error) error {
			rig.Must(t, put(100))
			dropSlot(t, r)
			process.Fails(t, exit.SlotLost, r.Slot)
			fault.Remove()
			recovering = rig.Start(t, "recover", "-c", r.Config)
			awaitBlockedCreation(t, r)
			return put(100)
		})
		recovering.Fails(t, exit.OK, "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}

// The stream is lost during a refill, which starts over. Recover reports each record once.
func TestRecoverSenderTerminated(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until a lost session is detected")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1))
	r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), fake.Cluster)
	process := r.Run(t)
	r.Deliver(t, 100)
	r.AwaitSnapshotOfAll(t)
	process.Terminate(t)
	dropSlot(t, r)
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	r.Load.Transaction(t.Context(), t, []string{"k"}, func(_ pgx.Tx, put func(n int) error) error { return put(100) })
	recovering := rig.Start(t, "recover", "-c", r.Config)
	rig.Must(t, fault.Wait(t.Context(), 1))
	if !pgtest.QueryRow[bool](t, r.DB, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.Slot) {
		t.Fatal("no sender to terminate")
	}
	recovering.LoggedTimes(t, "refill started", 2)
	fault.Remove()
	recovering.Fails(t, exit.OK, "Refilled: 100 records")
	r.GoesOn(t)
	settleRefill(t, r)
}

// awaitBlockedCreation waits until the creation of a slot waits for an open transaction.
func awaitBlockedCreation(t *testing.T, r *rig.Rig) {
	t.Helper()
	wait.For(t, "the creation of the slot to wait for the transaction", func() bool {
		return pgtest.QueryRow[bool](t, r.DB, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND wait_event_type = 'Lock')`)
	})
}

// A partitioned table is read through its root: the rows of a key keep their order across partitions.
func TestRecoverPartitionedTable(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		for _, args := range [][]string{{"migrate", "down", "--yes"}, {"migrate", "up", "--partitioned"}} {
			if out, code := rig.Command(t, append(args, "--dsn", r.DB.DSN)...); code != 0 {
				t.Fatalf("%v: exit code %d\n%s", args, code, out)
			}
		}
		r.DB.Exec(t, `ALTER TABLE outbox ALTER created_at SET DEFAULT now() - (random() * 3)::int * interval '1 day'`)
		deliverAndStop(t, r, 100)
		dropSlot(t, r)
		r.Load.Run(t.Context(), t, 2000)
		if n := pgtest.QueryRow[int](t, r.DB, `SELECT count(DISTINCT tableoid)::int FROM outbox`); n < 2 {
			t.Fatalf("the rows are in %d partitions", n)
		}
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish_via_partition_root = false)`)
		runRecover(t, r, exit.Continuity, nil, "publish_via_partition_root = true", "nothing was changed")
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish_via_partition_root = true)`)
		runRecover(t, r, exit.OK, nil, "rows of public.outbox", "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}

// Every table is refilled, each in its own order.
func TestRecoverSeveralTables(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		r.Collector.Stop() // its ledger knows one table
		if out, code := rig.Command(t, "migrate", "up", "--table", "second", "--dsn", r.DB.DSN); code != 0 {
			t.Fatalf("migrate: exit code %d\n%s", code, out)
		}
		tables := []string{"--set", "outbox.tables=outbox,second"}
		fill := func(from, to int) {
			for _, table := range []string{"outbox", "second"} {
				r.DB.Exec(t, `INSERT INTO `+table+` (id, aggregatetype, aggregateid, type, payload)
					SELECT gen_random_uuid(), 'order', $1 || n % 7, 'T', jsonb_build_object('n', n) FROM generate_series($2::int, $3::int) n ORDER BY n`, table, from, to)
			}
		}
		process := r.Run(t, tables...)
		fill(1, 500)
		r.AwaitSnapshot(t)
		r.Confirmed(t)
		process.Terminate(t)
		dropSlot(t, r)
		fill(501, 1000)
		for _, table := range []string{"outbox", "second"} { // how rows lie there is no order
			r.DB.Exec(t, `UPDATE `+table+` SET created_at = created_at WHERE position % 3 = 0`)
		}
		runRecover(t, r, exit.OK, append(tables, "--dry-run"), "rows of public.outbox", "rows of public.second")
		runRecover(t, r, exit.OK, tables, "Refilled: ")
		process = r.Run(t, tables...)
		fill(1001, 1100)
		r.Confirmed(t)
		process.Terminate(t)
		seen := map[string]bool{}
		var first []*kgo.Record
		for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
			if id := rig.Header(rec, "id"); !seen[id] {
				seen[id] = true
				first = append(first, rec)
			}
		}
		ascending(t, first)
		if len(first) != 2200 {
			t.Errorf("%d rows have arrived, want 2200", len(first))
		}
	})
}

// If old rows were removed, undelivered ones may be among them: recover refuses unless the operator says
// that none is. Prune removes nothing while the slot is lost, and everything that was refilled later.
func TestRecoverPrunedRows(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t)
		r.Deliver(t, 100)
		r.AwaitSnapshotOfAll(t)
		process.Terminate(t)
		dropSlot(t, r)
		runRecover(t, r, exit.OK, []string{"--dry-run"}, "0 rows of public.outbox")
		r.Load.Run(t.Context(), t, 100)
		const rows = `SELECT count(*)::int FROM outbox`
		before := pgtest.QueryRow[int](t, r.DB, rows)
		if out, code := rig.Command(t, "prune", "-c", r.Config, "--older-than", "0s"); code != exit.SlotLost || pgtest.QueryRow[int](t, r.DB, rows) != before {
			t.Errorf("prune without a slot: exit code %d\n%s", code, out)
		}
		r.DB.Exec(t, `DELETE FROM outbox WHERE pg_visible_in_snapshot(xid, $1::pg_snapshot)`, r.Recorded(t).Snapshots[0].Text)
		record := r.Recorded(t)
		runRecover(t, r, exit.Continuity, nil, `table "public"."outbox" has no delivered row`, "--assume-unpruned", "nothing was changed")
		if n := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM pg_replication_slots`); n > 0 || r.Recorded(t).Owner != record.Owner {
			t.Errorf("%d slots, recorded is %+v", n, r.Recorded(t))
		}
		runRecover(t, r, exit.OK, []string{"--assume-unpruned"}, "Refilled: ")
		process = r.Run(t)
		r.Arrived(t)
		r.Confirmed(t)
		settleRefill(t, r)
		if out, code := rig.Command(t, "prune", "-c", r.Config, "--older-than", "0s"); code != 0 || pgtest.QueryRow[int](t, r.DB, rows) != 0 {
			t.Errorf("prune after the refill: exit code %d\n%s", code, out)
		}
		process.Terminate(t)
	})
}

// What a refill has sent counts as delivered after the next loss of the slot, also if retention has deleted the older rows meanwhile. That holds
// for rows of subtransactions, and for a role that may not find out which row is the newest.
func TestRecoverTwice(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a server of its own")
	for name, byColumn := range map[string]bool{"rows of subtransactions": false, "a role for each column": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := rig.NewOwn(t)
			deliverAndStop(t, r, 100)
			dropSlot(t, r)
			r.DB.Exec(t, `DO $$ BEGIN FOR i IN 1..50 LOOP BEGIN
				INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k' || i, 'T', '{}');
				EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$`)
			var flags []string
			if byColumn {
				columns := pgtest.QueryRow[string](t, r.DB, `SELECT string_agg(quote_ident(attname), ',') FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0`)
				role := r.DB.Role(t, `GRANT SELECT (`+columns+`) ON outbox TO $ROLE; ALTER ROLE $ROLE REPLICATION`)
				flags = []string{"--dsn", strings.Replace(r.DB.DSN, "postgres@", role+"@", 1)}
			}
			runRecover(t, r, exit.OK, flags, "50 rows of public.outbox", "Refilled: ")
			if got := r.Recorded(t).Witness() == (checkpoint.Witness{}); got != byColumn {
				t.Errorf("recorded is %+v", r.Recorded(t).Snapshots)
			}
			dropSlot(t, r)
			r.DB.Exec(t, `DELETE FROM outbox WHERE aggregateid NOT LIKE 'k%' OR type <> 'T'`)
			runRecover(t, r, exit.OK, []string{"--dry-run"}, "\n  0 rows of public.outbox")
		})
	}
}

// A table that does not say which transaction wrote a row, or in which order, is refused before anything is
// changed, and so is a relay without a record or a right.
func TestRecoverRefuses(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverDroppedSlot runs always")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		runRecover(t, r, exit.Continuity, nil, "has no position record")
		deliverAndStop(t, r, 100)
		dropSlot(t, r)
		r.DB.Exec(t, `CREATE ROLE reader LOGIN REPLICATION`)
		reader := strings.Replace(r.DB.DSN, "//postgres@", "//reader@", 1)
		runRecover(t, r, exit.Source, []string{"--dsn", reader}, `GRANT SELECT ON "public"."outbox"`)
		r.DB.Exec(t, `ALTER TABLE outbox DROP COLUMN position`)
		runRecover(t, r, exit.Continuity, nil, `ALTER TABLE "public"."outbox" ADD COLUMN position bigint NOT NULL GENERATED ALWAYS AS IDENTITY`)
		r.DB.Exec(t, `ALTER TABLE outbox ALTER COLUMN xid DROP DEFAULT`)
		runRecover(t, r, exit.Continuity, nil, `ALTER COLUMN xid SET DEFAULT pg_current_xact_id()`)
		r.DB.Exec(t, `ALTER TABLE outbox DROP COLUMN xid, ADD COLUMN xid bigint`)
		runRecover(t, r, exit.Continuity, nil, `RENAME COLUMN xid`, `ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()`)
		if n := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM pg_replication_slots`); n > 0 {
			t.Errorf("%d slots", n)
		}

		if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
			t.Fatalf("setup: exit code %d\n%s", code, out)
		}
		r.Refused(t, exit.Continuity, "re-created", "so recover cannot send its rows: send the missing rows: outbox-cdc replay ", "next: find out who")
		for _, verb := range []string{"status", "check"} {
			if out, _ := rig.Command(t, verb, "-c", r.Config); !strings.Contains(out, "outbox-cdc replay ") || strings.Contains(out, "outbox-cdc recover") {
				t.Errorf("%s:\n%s", verb, out)
			}
		}
	})
}

// Check says which table cannot be refilled, and the statement that it prints makes it one that can be.
func TestCheckRefill(t *testing.T) {
	need.FullRun(t, "internal/catalog and internal/check test the condition always")
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `ALTER TABLE outbox DROP COLUMN xid, DROP COLUMN position`)
	r.Run(t).Terminate(t)
	check := func(want string) (fix string) {
		out, _ := rig.Command(t, "check", "-c", r.Config, "--json")
		var conditions []struct{ Condition, State, Fix string }
		rig.Must(t, json.Unmarshal([]byte(out), &conditions))
		for _, c := range conditions {
			if c.Condition == "refill" {
				if c.State != want {
					t.Errorf("refill is %q, want %q", c.State, want)
				}
				return c.Fix
			}
		}
		t.Fatalf("check says nothing of refill:\n%s", out)
		return ""
	}
	r.DB.Exec(t, check("warning"))
	check("ok")
}

// refillOnLoss has run refill by itself.
var refillOnLoss = []string{"--set", "source.on_slot_loss=refill"}

// With source.on_slot_loss: refill the relay recovers by itself, under load, whether its slot is dropped or
// somebody has created it again, and whether it streams or not.
func TestRefillOnSlotLoss(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestOperations in test/runbook refills by itself, and test/twin under load")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t, refillOnLoss...)
		rig.UnderLoad(t, r, func() {
			for i := range rig.Cycles(t) {
				r.Progress(t)
				r.AwaitSnapshot(t)
				dropSlot(t, r)
				process.LoggedTimes(t, "refill finished", i+1)
				r.Progress(t)
			}
			process.Terminate(t)
			dropSlot(t, r)
			process = r.Run(t, refillOnLoss...)
			r.Progress(t)
			process.Terminate(t)

			dropSlot(t, r)
			if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
				t.Fatalf("setup: exit code %d\n%s", code, out)
			}
			process = r.Run(t, refillOnLoss...)
			process.Logged(t, "re-created by somebody else")
			r.Progress(t)
		})
		r.Arrived(t)
		r.Confirmed(t)
		settleRefill(t, r)
		process.Terminate(t)
		r.GoesOn(t)
		r.Settle(t, 0)
	})
}

// A relay that is killed again and again while it refills, or whose slot is lost again meanwhile, loses
// nothing, and two relays of which both notice the loss do not disturb each other.
func TestRefillOnSlotLossInterrupted(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills a refill at each step")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		deliverAndStop(t, r, 100, refillOnLoss...)
		dropSlot(t, r)
		const rows = 200_000
		r.Load.Giant(t.Context(), t, rows)
		var process *rig.Process
		rig.UnderLoad(t, r, func() {
			for _, again := range []bool{false, true, false} {
				process = rig.Start(t, append([]string{"run", "-c", r.Config}, refillOnLoss...)...)
				process.Logged(t, "refill started")
				<-time.After(200 * time.Millisecond) // of refilling
				process.Kill(t)
				if again {
					dropSlot(t, r)
				}
			}
			r.Refused(t, exit.Continuity, "refill", "outbox-cdc recover")
			process = rig.Start(t, append([]string{"run", "-c", r.Config}, refillOnLoss...)...)
			second := rig.Start(t, append([]string{"run", "-c", r.Config}, refillOnLoss...)...)
			r.Progress(t)
			dropSlot(t, r)
			r.Progress(t)
			second.Terminate(t)
			r.Progress(t)
		})
		r.Arrived(t)
		r.Confirmed(t)
		settleRefill(t, r)
		process.Terminate(t)
	})
}

// A relay that is stopped while it prepares a refill ends with exit code 0. The next start refills.
func TestRefillOnSlotLossStopped(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRefillOnSlotLoss")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		process := r.Run(t, refillOnLoss...)
		r.Deliver(t, 100)
		r.AwaitSnapshot(t)
		r.Load.Transaction(t.Context(), t, []string{"k"}, func(_ pgx.Tx, put func(n int) error) error {
			rig.Must(t, put(1))
			dropSlot(t, r)
			awaitBlockedCreation(t, r)
			process.Terminate(t)
			return put(1)
		})
		process = r.Run(t, refillOnLoss...)
		r.Arrived(t)
		r.Confirmed(t)
		settleRefill(t, r)
		process.Terminate(t)
	})
}

// If the gap cannot be refilled, the relay stops as without the setting, and says why.
func TestRefillOnSlotLossRefused(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverDroppedSlot runs always")
	pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		process := r.Run(t, refillOnLoss...)
		r.Deliver(t, 100)
		r.AwaitSnapshot(t)
		r.DB.Exec(t, `ALTER TABLE outbox ALTER COLUMN xid DROP NOT NULL`)
		dropSlot(t, r)
		process.Fails(t, exit.SlotLost, "does not exist", "cannot be refilled", "ALTER COLUMN xid SET NOT NULL")
		rig.Start(t, append([]string{"run", "-c", r.Config}, refillOnLoss...)...).Fails(t, exit.SlotLost, "cannot be refilled")
		if out, _ := rig.Command(t, append([]string{"check", "-c", r.Config}, refillOnLoss...)...); !strings.Contains(out, "source.on_slot_loss is refill, which is not available") {
			t.Errorf("check says:\n%s", out)
		}
	})
}

// A table that was restored from a dump on another server is refilled if the operator says so, and not if
// something has written to it since. Without that, and if the server is said to be an upgraded one, recover
// refuses: the same transaction ids may mean other transactions there. A refill that stops at a row sends all others when it goes on.
func TestRecoverRestoredDump(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a pg_dump")
	pgtest.NewestTwo(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		programs := pgserver.Config{BinDir: shared.Install().BinDir}
		restored := pgtest.StartOther(t, programs)
		r, front := newMoving(t, pgtest.Start(t, programs))
		deliverAndStop(t, r, 3000)
		r.Load.Run(t.Context(), t, 100)
		bad := pgtest.QueryRow[string](t, r.DB, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), 'order', 'bad', 'T', to_jsonb(repeat('x', 2000000))) RETURNING id::text`)
		r.Load.Run(t.Context(), t, 100)
		var dump bytes.Buffer
		_, err := r.DB.Conn(t).PgConn().CopyTo(t.Context(), &dump, `COPY outbox TO STDOUT`)
		rig.Must(t, err)

		front.Redirect(restored.Addr())
		(&pgtest.DB{DSN: restored.DSN("postgres")}).Exec(t, `CREATE DATABASE `+r.DB.Name)
		copied := &pgtest.DB{Name: r.DB.Name, Server: restored, DSN: restored.DSN(r.DB.Name)}
		rig.Migrate(t, copied.DSN)
		_, err = copied.Conn(t).PgConn().CopyFrom(t.Context(), &dump, `COPY outbox FROM STDIN`)
		rig.Must(t, err)
		copied.Exec(t, `SELECT setval(pg_get_serial_sequence('outbox', 'position'), max(position)) FROM outbox`)
		copied.Exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)

		runRecover(t, r, exit.Continuity, nil, "the server is system", "--assume-restored", "--assume-upgraded", "nothing was changed")
		runRecover(t, r, exit.Continuity, []string{"--assume-upgraded"}, "was not upgraded from the recorded one")
		copied.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', '{}')`)
		runRecover(t, r, exit.Continuity, []string{"--assume-restored"}, "were written after the dump was restored")
		copied.Exec(t, `DELETE FROM outbox WHERE aggregateid = 'k'`)
		if n := pgtest.QueryRow[int](t, copied, `SELECT count(*)::int FROM pg_replication_slots`); n > 0 {
			t.Errorf("%d slots", n)
		}
		runRecover(t, r, exit.BadRecord, []string{"--assume-restored"}, "rows of public.outbox")
		copied.Exec(t, `DELETE FROM outbox WHERE id = $1`, bad)
		runRecover(t, r, exit.OK, []string{"--assume-restored"}, "Refilled: ")
		deliverAndStop(t, r, 100)
		settleRefill(t, r)
		if p := r.Recorded(t); p.SystemID != pgtest.QueryRow[string](t, copied, `SELECT system_identifier::text FROM pg_control_system()`) {
			t.Errorf("recorded is %+v", p)
		}
	})
}

// After pg_upgrade the system identifier is another one, and transaction ids go on.
func TestRecoverUpgradedServer(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestRecoverDroppedSlot")
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		deliverAndStop(t, r, 100)
		dropSlot(t, r)
		r.Load.Run(t.Context(), t, 100)

		// The record, and not the server, gets another system identifier, which is the same to the relay.
		system := pgtest.QueryRow[string](t, r.DB, `SELECT system_identifier::text FROM pg_control_system()`)
		records := r.Kafka.ReadAll(t, position.DefaultTopic)
		for _, rec := range slices.Backward(records) {
			if key, _, _ := strings.Cut(string(rec.Key), "/"); key == r.Slot && rec.Value != nil {
				value := bytes.Replace(rec.Value, []byte(system), []byte("7000000000000000001"), 1)
				changed := &kgo.Record{Topic: position.DefaultTopic, Partition: rec.Partition, Key: rec.Key, Value: value}
				rig.Must(t, r.Kafka.Client(t).ProduceSync(t.Context(), changed).FirstErr())
				break
			}
		}
		runRecover(t, r, exit.Continuity, nil, "the record is of system 7000000000000000001", "--assume-upgraded")
		runRecover(t, r, exit.Continuity, []string{"--assume-restored"}, "were written after the dump was restored")
		runRecover(t, r, exit.OK, []string{"--assume-upgraded"}, "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}

// A refill stops at a row that the broker rejects. To skip a transaction of the WAL would leave out the rest of the refill: it goes on when
// the row is mended. The stop waits for nothing that cannot come any more.
func TestRecoverStopsAtABadRow(t *testing.T) {
	need.FullRun(t, "TestRecoverDroppedSlot runs always, and internal/encode tests the row")
	t.Parallel()
	onNewest(t, func(t *testing.T, r *rig.Rig) {
		deliverAndStop(t, r, 100)
		dropSlot(t, r)
		r.Load.Run(t.Context(), t, 20)
		bad := pgtest.QueryRow[string](t, r.DB, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			VALUES (gen_random_uuid(), 'order', 'a', 'T', to_jsonb(repeat('x', 2000000))) RETURNING id::text`)
		r.Load.Run(t.Context(), t, 20)
		out := runRecover(t, r, exit.BadRecord, []string{"--set", "drain_timeout=1h"}, "of the rows read from the table, id "+bad, "max.message.bytes", "run the same command again")
		if strings.Contains(out, "pg_replication_slot_advance") || strings.Contains(out, "Postgres\nresends") {
			t.Errorf("recover says to skip a transaction:\n%s", out)
		}
		r.DB.Exec(t, `DELETE FROM outbox WHERE id = $1`, bad)
		runRecover(t, r, exit.OK, nil, "was interrupted", "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)
	})
}
