package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

var anyTime = cmp.Comparer(func(a, b time.Time) bool { return a.IsZero() == b.IsZero() })

// equateEmpty makes nil and an empty slice equal.
var equateEmpty = cmpopts.EquateEmpty()

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, cfg := range []Config{{}, {Partitioned: true}} {
			db := pgtest.DatabaseOn(t, srv)
			p, ctx := pool(t, db), t.Context()
			pending := []Migration{{Version: 1, Name: "00001_outbox"}}
			applied := []Migration{{Version: 1, Name: "00001_outbox", AppliedAt: time.Now()}}
			step := func(what string, got []Migration, err error, want []Migration) {
				t.Helper()
				if err != nil {
					t.Fatalf("%+v: %s: %v", cfg, what, err)
				}
				if diff := cmp.Diff(want, got, anyTime, equateEmpty); diff != "" {
					t.Fatalf("%+v: %s (-want +got):\n%s", cfg, what, diff)
				}
			}
			got, err := Status(ctx, p, cfg)
			step("Status of an empty database", got, err, pending)
			if left := objects(t, db); len(left) > 0 {
				t.Fatalf("Status created %s", left)
			}
			got, err = Up(ctx, p, cfg)
			step("Up", got, err, applied)
			got, err = Up(ctx, p, cfg)
			step("second Up", got, err, nil)
			got, err = Status(ctx, p, cfg)
			step("Status", got, err, applied)
			got, err = Down(ctx, p, cfg, 1)
			step("Down to what there is", got, err, nil)
			got, err = Down(ctx, p, Config{}, 0)
			step("Down", got, err, pending)
			if left := objects(t, db); len(left) > 0 {
				t.Fatalf("%+v: Down left %s", cfg, left)
			}
			got, err = Down(ctx, p, cfg, 0)
			step("second Down", got, err, nil)
			got, err = Up(ctx, p, cfg)
			step("Up again", got, err, applied)
		}
	})
}

// Writers, the relay and recover depend on the columns of the table.
func TestTable(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, cfg := range []Config{{}, {Partitioned: true}} {
			db := pgtest.DatabaseOn(t, srv)
			if _, err := Up(t.Context(), pool(t, db), cfg); err != nil {
				t.Fatal(err)
			}
			primaryKey := "PRIMARY KEY (id)"
			if cfg.Partitioned {
				primaryKey = "PRIMARY KEY (id, created_at)"
			}
			want := []string{
				"id uuid not null",
				"position bigint not null always",
				"aggregatetype text not null",
				"aggregateid text not null",
				"type text not null",
				"payload jsonb",
				"headers jsonb",
				"created_at timestamp with time zone not null default clock_timestamp()",
				"xid xid8 not null default pg_current_xact_id()",
				"CHECK ((jsonb_typeof(headers) = 'object'::text))",
				primaryKey,
			}
			if diff := cmp.Diff(want, describe(t, db)); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", cfg, diff)
			}
			undocumented := pgtest.QueryRow[int](t, db, `
				SELECT count(*) FROM pg_attribute
				WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL`)
			if undocumented != 0 {
				t.Errorf("%d columns have no comment", undocumented)
			}
		}
	})
}

// describe returns columns and constraints of the table outbox.
func describe(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return pgtest.QueryRow[[]string](t, db, `
		SELECT array_agg(line ORDER BY kind, n, line) FROM (
			SELECT 1 AS kind, a.attnum AS n, concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
				CASE WHEN a.attnotnull THEN 'not null' END,
				CASE a.attidentity WHEN 'a' THEN 'always' END,
				'default ' || pg_get_expr(d.adbin, d.adrelid)) AS line
			FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
			WHERE a.attrelid = 'outbox'::regclass AND a.attnum > 0
			UNION ALL
			SELECT 2, 0, pg_get_constraintdef(oid) FROM pg_constraint
			WHERE conrelid = 'outbox'::regclass AND contype <> 'n'
		) AS lines`)
}

func TestConcurrentDeployersTakeTurns(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Partitioned: true}} {
		db := pgtest.Database(t)
		var wg sync.WaitGroup
		results, errs := make([]int, 8), make([]error, 8)
		for i := range results {
			p := pool(t, db)
			wg.Go(func() {
				done, err := Up(t.Context(), p, cfg)
				results[i], errs[i] = len(done), err
			})
		}
		wg.Wait()
		total := 0
		for _, n := range results {
			total += n
		}
		if err := errors.Join(errs...); err != nil || total != 1 {
			t.Errorf("%+v: %d migrations applied by 8 deployers, want 1; errors: %v", cfg, total, err)
		}
	}
}

func TestUpWorksOnASinglePooledConnection(t *testing.T) {
	t.Parallel()
	p := pool(t, pgtest.Database(t))
	p.SetMaxOpenConns(1)
	if _, err := Up(t.Context(), p, Config{}); err != nil {
		t.Fatal(err)
	}
}

func TestPrintedSQLMakesTheSameObjects(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, cfg := range []Config{{}, {Partitioned: true}} {
			up, printed := pgtest.DatabaseOn(t, srv), pgtest.DatabaseOn(t, srv)
			printsWhatItDoes(t, cfg, up, printed, "outbox_cdc_migrations", func() {
				if diff := cmp.Diff(describe(t, up), describe(t, printed)); diff != "" {
					t.Errorf("%+v: table (-Up +Print):\n%s", cfg, diff)
				}
			})
		}
	})
}

// printsWhatItDoes runs Up on one database and the SQL of Print on another, compares them, calls more, and
// undoes the printed SQL.
func printsWhatItDoes(t *testing.T, cfg Config, up, printed *pgtest.DB, history string, more func()) {
	t.Helper()
	if _, err := Up(t.Context(), pool(t, up), cfg); err != nil {
		t.Fatal(err)
	}
	var sql strings.Builder
	if err := Print(&sql, cfg); err != nil {
		t.Fatal(err)
	}
	printed.Exec(t, sql.String())
	up.Exec(t, `DROP TABLE `+history)
	if diff := cmp.Diff(objects(t, up), objects(t, printed)); diff != "" {
		t.Errorf("%+v: objects (-Up +Print):\n%s", cfg, diff)
	}
	more()
	_, undo, _ := strings.Cut(sql.String(), "-- To undo:")
	printed.Exec(t, strings.ReplaceAll(undo, "--", ""))
	if left := objects(t, printed); len(left) > 0 {
		t.Errorf("%+v: the printed undo left %s", cfg, left)
	}
}

func TestTablesOfOneSchemaHaveSeparateHistories(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE SCHEMA "Billing"`)
	p, ctx := pool(t, db), t.Context()
	first, second := Config{Table: `"Billing".outbox`}, Config{Table: `"Billing"."Out ""box"""`, Partitioned: true}
	for _, cfg := range []Config{first, second} {
		if done, err := Up(ctx, p, cfg); err != nil || len(done) != 1 {
			t.Fatalf("Up(%+v) = %v, %v", cfg, done, err)
		}
	}
	if made := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM "Billing"."Out ""box""_create_partitions"(20)`); made != 20-InitialDays {
		t.Errorf("the function created %d partitions, want %d", made, 20-InitialDays)
	}
	if _, err := Down(ctx, p, second, 0); err != nil {
		t.Fatal(err)
	}
	want := []string{`"Billing".outbox`, `"Billing".outbox_cdc_migrations`, `"Billing".outbox_position_seq`}
	if diff := cmp.Diff(want, objects(t, db)); diff != "" {
		t.Errorf("after Down of the second (-want +got):\n%s", diff)
	}
}

func TestUpRefusesTheTableOfSomebodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE outbox (id int)`)
	if _, err := Up(t.Context(), pool(t, db), Config{}); !errors.Is(err, ErrTableExists) {
		t.Fatalf("Up = %v, want ErrTableExists", err)
	}
	if _, err := Down(t.Context(), pool(t, db), Config{}, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"outbox"}, objects(t, db)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// A table that was dropped by hand is not up to date. Down and Up create it again.
func TestUpOfADroppedTable(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Part: Inbox}} {
		db := pgtest.Database(t)
		p := pool(t, db)
		if _, err := Up(t.Context(), p, cfg); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `DROP TABLE IF EXISTS outbox, processed_events`)
		if _, err := Up(t.Context(), p, cfg); !errors.Is(err, ErrDropped) || !strings.Contains(err.Error(), "migrate down --only ") {
			t.Fatalf("Up = %v, want ErrDropped", err)
		}
		if _, err := Down(t.Context(), p, cfg, 0); err != nil {
			t.Fatal(err)
		}
		if done, err := Up(t.Context(), p, cfg); err != nil || len(done) == 0 {
			t.Errorf("Up = %v, %v", done, err)
		}
	}
}

func TestUpRefusesToChangeTheForm(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Partitioned: true}} {
		p := pool(t, pgtest.Database(t))
		if _, err := Up(t.Context(), p, cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := Up(t.Context(), p, Config{Partitioned: !cfg.Partitioned}); !errors.Is(err, ErrForm) {
			t.Errorf("Up = %v, want ErrForm", err)
		}
	}
}

func TestDownRefusesWhilePublished(t *testing.T) {
	t.Parallel()
	for _, published := range []string{"outbox", "outbox_default"} {
		db := pgtest.Database(t)
		p := pool(t, db)
		if _, err := Up(t.Context(), p, Config{Partitioned: true}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `CREATE PUBLICATION cdc FOR TABLE `+published)
		_, err := Down(t.Context(), p, Config{}, 0)
		if !errors.Is(err, ErrPublished) || !strings.HasSuffix(err.Error(), ": cdc") {
			t.Errorf("Down = %v, want ErrPublished naming the publication", err)
		}
		db.Exec(t, `DROP PUBLICATION cdc`)
		if _, err := Down(t.Context(), p, Config{}, 0); err != nil {
			t.Error(err)
		}
	}
}

func TestUpNeedsASchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET search_path = nowhere`)
	if _, err := Up(t.Context(), pool(t, db), Config{Table: "missing.outbox"}); !errors.Is(err, ErrNoSchema) || !strings.Contains(err.Error(), `"missing"`) {
		t.Errorf("Up = %v, want ErrNoSchema with the schema", err)
	}
	if _, err := Up(t.Context(), pool(t, db), Config{}); !errors.Is(err, ErrNoSchema) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("Up = %v, want ErrNoSchema with the search_path", err)
	}
}

// A deployer that gives up releases the lock.
func TestUpCanBeCanceledWhileItWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	holder := db.Conn(t)
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lockKey); err != nil {
		t.Fatal(err)
	}
	p := pool(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := Up(ctx, p, Config{})
		result <- err
	}()
	for !pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks 
		WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`) {
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Up = %v, want context.Canceled", err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, lockKey); err != nil {
		t.Fatal(err)
	}
	if _, err := Up(t.Context(), p, Config{}); err != nil {
		t.Errorf("Up after the cancellation: %v", err)
	}
}

// Any role can hold the lock. So a deployer waits for a limited time, and its error names the holder.
func TestUpDoesNotWaitForAStranger(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	role := "stranger_" + db.Name
	db.Exec(t, `CREATE ROLE `+role+` LOGIN`)
	defer db.Exec(t, `DROP ROLE `+role)
	stranger, err := as(t, db, role).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	var pid int
	if err := stranger.QueryRowContext(t.Context(), `SELECT pg_backend_pid() FROM pg_advisory_lock($1)`, lockKey).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	deployer, err := pool(t, db).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer deployer.Close()
	err = locker{50 * time.Millisecond}.SessionLock(t.Context(), deployer)
	held, ok := errors.AsType[*advisory.HeldError](err)
	if want := fmt.Sprintf(`process %d (role "%s"`, pid, role); !ok || !strings.Contains(held.Holders, want) {
		t.Errorf("SessionLock = %v, want %s", err, want)
	}
	var timeout string
	if err := deployer.QueryRowContext(t.Context(), `SHOW lock_timeout`).Scan(&timeout); err != nil || timeout != "0" {
		t.Errorf("lock_timeout = %s, %v: the limit is for the wait only", timeout, err)
	}
}

func TestStatusNeedsNoRightToWrite(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if _, err := Up(t.Context(), pool(t, db), Config{}); err != nil {
		t.Fatal(err)
	}
	role := "reader_" + db.Name
	db.Exec(t, `CREATE ROLE `+role+` LOGIN; GRANT SELECT ON outbox_cdc_migrations TO `+role)
	defer db.Exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role)
	got, err := Status(t.Context(), as(t, db, role), Config{})
	if err != nil || len(got) != 1 || got[0].AppliedAt.IsZero() {
		t.Errorf("Status = %v, %v", got, err)
	}
}
