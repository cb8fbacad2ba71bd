package prune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestRows(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, srv, "", false)
		r.consume(t, r.Name)
		r.insert(t, 100, 3000)
		r.insert(t, 71, 50)
		var steps int
		r.cfg.Progress = func(_ string, _, _ int) { steps++ }

		r.cfg.DryRun = true
		if got := r.prune(t); got.Deleted != 3000 || got.Confirmed == "" || got.Name != "public.outbox" {
			t.Errorf("dry run: %+v", got)
		}
		r.expectRows(t, 3050)
		r.cfg.DryRun = false
		if got := r.prune(t); got.Deleted != 3000 || got.Busy != 0 || len(got.Warnings) > 0 {
			t.Errorf("%+v", got)
		}
		r.expectRows(t, 50)
		if steps < 3 {
			t.Errorf("3000 rows went in %d transactions of about 100", steps)
		}
		if got := r.prune(t); got.Deleted != 0 {
			t.Errorf("again: %+v", got)
		}
	})
}

// Prune without the rights that it needs names the missing one, even if no relay runs and there is no row to delete. It
// must not report 0 rows.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	for _, partitioned := range []bool{false, true} {
		r := newRig(t, pgtest.Server(t), "", partitioned)
		if partitioned {
			r.Exec(t, `ALTER FUNCTION outbox_create_partitions(int) SECURITY DEFINER`)
		}
		fails := func(text string) {
			t.Helper()
			for _, r.cfg.DryRun = range []bool{true, false} {
				report, err := Run(t.Context(), r.cfg)
				_, ok := errors.AsType[*catalog.RightError](err)
				if !ok || !errors.Is(err, replication.ErrAccess) || !strings.Contains(err.Error(), text) || len(report.Tables) > 0 {
					t.Errorf("%v, want %q; %+v", err, text, report)
				}
			}
		}
		leaf := map[bool]string{false: "public.outbox", true: "public.outbox_default"}[partitioned]
		r.role(t, `GRANT USAGE ON SCHEMA public TO %s`)
		const asOwner = `run prune as the owner of the table: --dsn "$OWNER_DSN"`
		advice := map[bool]string{false: ": use the operator's role, or if this is it: GRANT SELECT, DELETE ON " + leaf + " TO ", true: ", and prune drops partitions: " + asOwner}
		fails("lacks SELECT, DELETE on " + leaf + advice[partitioned])
		role := r.cfg.Source.User
		r.Exec(t, `GRANT SELECT ON `+leaf+` TO `+role)
		fails("lacks DELETE on " + leaf + strings.Replace(advice[partitioned], "SELECT, ", "", 1))
		r.Exec(t, `GRANT DELETE ON `+leaf+` TO `+role)
		r.Exec(t, `REVOKE USAGE ON SCHEMA public FROM PUBLIC, `+role)
		fails("lacks USAGE on schema public: use the operator's role, or if this is it: GRANT USAGE ON SCHEMA public TO ")
		r.Exec(t, `GRANT USAGE ON SCHEMA public TO `+role)
		if partitioned {
			r.Exec(t, `CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')`)
			r.Exec(t, `REVOKE SELECT ON `+leaf+` FROM `+role)
			fails(`does not own partition public.outbox_old, and only the owner can drop it: run prune as the owner of the table: --dsn "$OWNER_DSN"`)
			r.Exec(t, `GRANT SELECT ON `+leaf+` TO `+role+`; DROP TABLE outbox_old`)
		}
		r.Exec(t, `DO $$BEGIN EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || oid::regprocedure || ' FROM PUBLIC' FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND proargtypes[2] = 'text'::regtype; END$$`)
		fails("may not write logical messages: use the operator's role, or if this is it, as a superuser: GRANT EXECUTE ON FUNCTION pg_catalog.pg_logical_emit_message(boolean, text, text")
		r.Exec(t, `DO $$BEGIN EXECUTE 'GRANT EXECUTE ON FUNCTION ' || oid::regprocedure || ' TO PUBLIC' FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND proargtypes[2] = 'text'::regtype; END$$`)
		r.consume(t, r.Name)
		r.prune(t)
		if partitioned {
			r.Exec(t, `ALTER FUNCTION outbox_create_partitions(int) SECURITY INVOKER`)
			r.cfg.Days = 16
			report, err := Run(t.Context(), r.cfg)
			if _, ok := errors.AsType[*OwnerError](err); !ok || !strings.Contains(err.Error(), "create partitions: ") || !strings.Contains(err.Error(), ": run prune as the owner") {
				t.Errorf("%v, %+v", err, report)
			}
		}
	}
}

// Prune keeps the rows that the slot has not confirmed, whatever the reason.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	r.Exec(t, `CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')`)
	r.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at) VALUES (gen_random_uuid(), 'o', 'o', 'T', '2020-01-01 12:00:00+00')`)
	r.insert(t, 100, 10)
	r.cfg.Wait = 300 * time.Millisecond
	refuses := func(reason string) {
		t.Helper()
		report, err := Run(t.Context(), r.cfg)
		refusal, ok := errors.AsType[*NotConfirmedError](err)
		if !ok || !strings.Contains(refusal.reason, reason) {
			t.Errorf("%v, want %q", err, reason)
		}
		if len(report.Tables) != 1 || report.Tables[0].Deleted > 0 || len(report.Tables[0].Dropped) > 0 {
			t.Errorf("%+v", report)
		}
		r.expectRows(t, 11)
	}
	refuses("no relay streams")
	behind := r.consume(t, r.Name)
	behind.waits.Store(true)
	refuses("has not confirmed")
	r.Exec(t, `SET lock_timeout = '5s'; LOCK TABLE outbox_old IN ROW EXCLUSIVE MODE`) // no lock is left
	r.Exec(t, `DROP TABLE outbox_old`)
	r.insert(t, 100, 1)
	refuses("has not confirmed")

	behind.waits.Store(false)
	r.cfg.Wait = 20 * time.Second
	r.slot(t, "other_"+r.Name)
	r.cfg.Slots = append(r.cfg.Slots, "other_"+r.Name)
	refuses("no relay streams") // on the other slot
	r.consume(t, "other_"+r.Name)
	if got := r.prune(t); got.Deleted != 11 {
		t.Errorf("%+v", got)
	}
}

// If a relay reconnects in the meantime, it may use another slot with the same name. A position that it confirms
// says nothing about earlier rows.
func TestSlotChangesHands(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.insert(t, 100, 10)
	first := r.consume(t, r.Name)
	first.waits.Store(true)
	run := r.start(t.Context())
	r.marked(t)
	first.stop()
	r.eventually(t, "the slot to be free", fmt.Sprintf(`SELECT NOT active FROM pg_replication_slots WHERE slot_name = '%s'`, r.Name))
	r.consume(t, r.Name)
	<-run.done
	if refusal, ok := errors.AsType[*NotConfirmedError](run.err); !ok || !strings.Contains(refusal.reason, "reconnected") {
		t.Error(run.err)
	}
	r.expectRows(t, 10)
}

// marked waits until a prune has the lock, has written its mark to the WAL, and polls the slot's confirmed
// position.
func (r *rig) marked(t *testing.T) {
	t.Helper()
	asked := map[time.Time]bool{}
	wait.For(t, "a prune that waits", func() bool {
		for _, at := range pgtest.QueryRow[[]time.Time](t, r.DB, `SELECT COALESCE(array_agg(query_start), '{}') FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%confirmed_flush_lsn >= $2%' AND EXISTS (`+runningPrunes+`)`) {
			asked[at] = true
		}
		return len(asked) >= 4
	})
}

// If a transaction was open when prune took its snapshot, its rows stay, whatever their age. That also holds with
// savepoints, and if the transaction commits and is read before prune deletes rows.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, srv, "", false)
		c := r.consume(t, r.Name)
		r.insert(t, 200, 10)
		stays := r.open(t, fmt.Sprintf(insert, 100, 1))
		commits := r.open(t, fmt.Sprintf(insert, 100, 2)+`; SAVEPOINT s; `+fmt.Sprintf(insert, 100, 3)+`; RELEASE s`)
		r.eventually(t, "the old ones to be confirmed", fmt.Sprintf(`SELECT confirmed_flush_lsn > '0/0' FROM pg_replication_slots WHERE slot_name = '%s'`, r.Name))
		c.waits.Store(true)
		run := r.start(t.Context())
		r.marked(t)
		if err := commits.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.waits.Store(false)
		if got := run.wait(t); got.Deleted != 10 {
			t.Errorf("%+v", got)
		}
		r.expectRows(t, 5)
		if got := r.prune(t); got.Deleted != 5 { // the transaction has ended since
			t.Errorf("%+v", got)
		}
		if err := stays.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.expectRows(t, 1)
	})
}

// Prune skips rows that another transaction has locked or changed, and does not wait long for them.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.consume(t, r.Name)
	r.insert(t, 100, 5000)
	tx := r.open(t, `SELECT FROM outbox WHERE aggregateid = '4000' FOR UPDATE`)
	r.impatient()
	got := r.prune(t)
	if got.Busy != 1 || got.Deleted == 0 || got.Deleted >= 5000 {
		t.Errorf("%+v", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.cfg.patience = patience{}
	r.prune(t)
	r.expectRows(t, 0)
}

// Two prunes at the same time delete every row once.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.consume(t, r.Name)
	r.insert(t, 100, 20_000)
	first, second := r.start(t.Context()), r.start(t.Context())
	if a, b := waitBeside(t, first, second); a.Deleted+b.Deleted != 20_000 {
		t.Errorf("%d and %d rows", a.Deleted, b.Deleted)
	}
	r.expectRows(t, 0)
}

// Any role can take the lock of a prune and keep it. Prune then fails with an error that names the holder, but
// still prunes the other tables.
func TestLockOfAStranger(t *testing.T) {
	need.FullRun(t, "TestTableIsLocked runs always")
	t.Parallel()
	for name, partitioned := range map[string]bool{"rows": false, "partitions": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.Server(t), "", partitioned)
			r.consume(t, r.Name)
			stranger, pruning := "stranger_"+r.Name, "prune_"+r.Name
			r.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN; CREATE ROLE %s LOGIN; CREATE TABLE other (LIKE outbox); ALTER PUBLICATION cdc ADD TABLE other;
				GRANT SELECT, DELETE ON outbox, other TO %[2]s`, stranger, pruning))
			defer r.Exec(t, fmt.Sprintf(`DROP OWNED BY %s, %s; DROP ROLE %[1]s, %[2]s`, stranger, pruning))
			r.insert(t, 100, 10)
			r.Exec(t, `INSERT INTO other SELECT * FROM outbox`)
			as := func(role string) *pgx.ConnConfig {
				cfg := r.Conn(t).Config()
				cfg.User, cfg.RuntimeParams["application_name"] = role, "a tool"
				return cfg
			}
			r.cfg.Tables = []string{"outbox", "other"}
			if partitioned {
				r.Exec(t, `CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')`)
			} else {
				r.cfg.Source = as(pruning)
			}
			conn, err := pgx.ConnectConfig(t.Context(), as(stranger))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock(x'6f637072'::int, c.oid::int) FROM pg_class c WHERE relname LIKE 'outbox%' AND relkind IN ('r', 'p')`); err != nil {
				t.Fatal(err)
			}
			report, err := Run(t.Context(), r.cfg)
			held, ok := errors.AsType[*advisory.HeldError](err)
			if want := fmt.Sprintf(`process %d (role "%s", application "a tool")`, conn.PgConn().PID(), stranger); !ok || held.Holders != want {
				t.Errorf("%v, want %s", err, want)
			}
			if a, b := report.Tables[0], report.Tables[1]; a.Deleted != 0 || len(a.Dropped) > 0 || b.Deleted != 10 {
				t.Errorf("%+v", report)
			}
			r.expectRows(t, 10)
			if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
				t.Fatal(err)
			}
			if got := r.prune(t); got.Deleted != 10 || partitioned && len(got.Dropped) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// If prune is interrupted, the rows that it has deleted stay deleted, nothing else has changed, and it can run
// again.
func TestEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, r *rig, cancel context.CancelFunc){
		"stopped": func(_ *testing.T, _ *rig, cancel context.CancelFunc) { cancel() },
		"cut off": func(t *testing.T, r *rig, _ context.CancelFunc) {
			r.Exec(t, `SELECT pg_terminate_backend(pid, 60000) FROM (`+runningPrunes+`) t`) // and waits: its snapshot is gone
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.Server(t), "", false)
			r.consume(t, r.Name)
			r.insert(t, 100, 2_000)
			r.insert(t, 1, 10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := false
			r.cfg.Progress = func(string, int, int) {
				if !ended {
					ended = true
					end(t, r, cancel)
				}
			}
			run := r.start(ctx)
			<-run.done
			if run.err == nil {
				t.Fatal("it was not ended")
			}
			deleted := run.report.Tables[0].Deleted
			if deleted == 0 || deleted == 2_000 {
				t.Errorf("%d rows were deleted", deleted)
			}
			r.expectRows(t, 2_010-int(deleted))
			r.cfg.Progress = nil
			r.prune(t)
			r.expectRows(t, 10)
		})
	}
}

// The age column may have several types. Without one, prune works only with --older-than 0s.
func TestAge(t *testing.T) {
	t.Parallel()
	const columns = `id uuid, aggregatetype text, aggregateid text, type text, payload jsonb`
	for name, tc := range map[string]struct {
		column string // the column definition
		age    string
		older  time.Duration
		want   int64
		fails  string
	}{
		"timestamp":     {", at timestamp", "at", time.Hour, 1, ""},
		"date":          {", at date", "at", 72 * time.Hour, 1, ""},
		"bigint":        {", at bigint", "at", time.Hour, 0, `column "at" has type bigint`},
		"none":          {"", "created_at", time.Hour, 0, "--older-than 0s"},
		"none, any age": {"", "created_at", 0, 4, ""},
		"any age":       {", at timestamptz", "at", 0, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.Server(t), `CREATE TABLE outbox (`+columns+tc.column+`)`, false)
			r.consume(t, r.Name)
			r.Exec(t, `INSERT INTO outbox (id) SELECT gen_random_uuid() FROM generate_series(1, 2)`)
			for _, age := range []string{"0 s", "9 days"} {
				if strings.Contains(tc.column, "date") || strings.Contains(tc.column, "timestamp") {
					r.Exec(t, `INSERT INTO outbox (id, at) VALUES (gen_random_uuid(), now() - $1::text::interval)`, age)
				} else {
					r.Exec(t, `INSERT INTO outbox (id) VALUES (gen_random_uuid())`)
				}
			}
			r.cfg.AgeColumn, r.cfg.OlderThan = tc.age, tc.older
			report, err := Run(t.Context(), r.cfg)
			if tc.fails != "" {
				if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%v, want %q", err, tc.fails)
				}
				return
			}
			if err != nil || report.Tables[0].Deleted != tc.want {
				t.Errorf("%+v, %v", report, err)
			}
			r.expectRows(t, 4-int(tc.want))
		})
	}
}

// A time without time zone is read in the zone of the database, in that of the connection, and in UTC. Whichever of them the writer
// had, prune removes no row that is younger than asked.
func TestTimeZones(t *testing.T) {
	need.FullRun(t, "TestAge runs always")
	t.Parallel()
	for _, kind := range []string{"timestamp", "date"} {
		for _, partition := range []string{"", " PARTITION BY RANGE (at)"} {
			t.Run(kind+partition, func(t *testing.T) {
				t.Parallel()
				if kind == "date" || partition != "" {
					need.FullRun(t, "a column of one type runs always")
				}
				r := newRig(t, pgtest.Server(t), `CREATE TABLE outbox (id uuid, at `+kind+`)`+partition, false)
				r.consume(t, r.Name)
				for _, tc := range []struct{ database, session, writer string }{
					{"UTC", "Asia/Tokyo", "UTC"},
					{"Asia/Tokyo", "Asia/Tokyo", "UTC"},
					{"America/New_York", "Asia/Tokyo", "America/New_York"},
					{"UTC", "America/New_York", "America/New_York"},
					{"Asia/Tokyo", "", "Asia/Tokyo"},
				} {
					r.Exec(t, `ALTER DATABASE `+r.Name+` SET timezone = '`+tc.database+`'`)
					if partition != "" {
						r.Exec(t, fmt.Sprintf(`DO $$ DECLARE old text := ((now() - interval '100 hours') AT TIME ZONE '%[1]s')::%[2]s; young text := ((now() - interval '20 hours') AT TIME ZONE '%[1]s')::%[2]s;
							BEGIN
								EXECUTE format('CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO (%%L)', old);
								EXECUTE format('CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM (%%L) TO (%%L)', old, young);
								CREATE TABLE outbox_3 PARTITION OF outbox DEFAULT;
							END $$`, tc.writer, kind))
					}
					r.Exec(t, fmt.Sprintf(`INSERT INTO outbox SELECT gen_random_uuid(), ((now() - make_interval(hours => hours)) AT TIME ZONE '%s')::%s FROM unnest(ARRAY[200, 21, 1]) AS hours`, tc.writer, kind))
					r.cfg.AgeColumn, r.cfg.OlderThan = "at", 22*time.Hour
					delete(r.cfg.Source.RuntimeParams, "timezone")
					if tc.session != "" {
						r.cfg.Source.RuntimeParams["timezone"] = tc.session
					}
					r.prune(t)
					if left := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM outbox`); left != 2 {
						t.Errorf("%+v: %d rows are left, want 2", tc, left)
					}
					r.Exec(t, `TRUNCATE outbox; DROP TABLE IF EXISTS outbox_1, outbox_2, outbox_3`)
				}
			})
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	fails := func(want error, text string) {
		t.Helper()
		if _, err := Run(t.Context(), r.cfg); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v with %q", err, want, text)
		}
	}
	r.cfg.Tables = []string{"nowhere"}
	fails(ErrConfig, "table nowhere: cannot be pruned: the table does not exist")
	r.Exec(t, `CREATE VIEW v AS SELECT 1`)
	r.cfg.Tables = []string{"v"}
	fails(ErrConfig, "not a table")
	r.cfg.Tables, r.cfg.Slots = []string{"outbox"}, []string{"nowhere"}
	fails(replication.ErrSlotMissing, `slot "nowhere"`)
	r.cfg.Slots = []string{r.Name, "nowhere"} // the recovery of a lost slot is no help for a wrong flag
	fails(ErrConfig, `there is no slot "nowhere"`)
	r.Exec(t, `SELECT pg_create_logical_replication_slot('t_' || current_database(), 'test_decoding')`)
	r.cfg.Slots = []string{"t_" + r.Name}
	fails(ErrConfig, "does not use pgoutput")
}

// To delete rows, prune needs only DELETE and SELECT. It warns about a publication that publishes deletes.
func TestRights(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.consume(t, r.Name)
	r.insert(t, 100, 10)
	r.role(t, `GRANT SELECT, DELETE ON outbox TO %s`)
	r.Exec(t, `ALTER PUBLICATION cdc SET (publish = 'insert, delete')`)
	got := r.prune(t)
	if got.Deleted != 10 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "ALTER PUBLICATION cdc SET (publish = 'insert')") {
		t.Errorf("%+v", got)
	}
}

// role makes prune use a role with only the granted rights.
func (r *rig) role(t *testing.T, grant string) {
	t.Helper()
	role, conn := "p_"+r.Name, r.Conn(t)
	r.Exec(t, `CREATE ROLE `+role+` LOGIN; `+fmt.Sprintf(grant, role))
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	r.cfg.Source.User = role
}
