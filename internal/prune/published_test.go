package prune

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// plain creates an outbox.
const plain = `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, created_at timestamptz)`

// A table is pruned if the relay's publication publishes all rows that are inserted into it, however the
// publication names it. Otherwise it is rejected.
func TestPublished(t *testing.T) {
	t.Parallel()
	const tables = plain + `;
		CREATE TABLE outbox_unlogged (LIKE outbox);
		ALTER TABLE outbox_unlogged SET UNLOGGED;
		CREATE SCHEMA elsewhere;
		CREATE TABLE parted (LIKE outbox) PARTITION BY LIST (aggregateid);
		CREATE TABLE elsewhere.rest PARTITION OF parted DEFAULT;
		CREATE TABLE few PARTITION OF parted FOR VALUES IN ('1', '2', '3', '4') PARTITION BY HASH (aggregateid);
		CREATE TABLE few_0 PARTITION OF few FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE few_1 PARTITION OF few FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE mixed (LIKE outbox) PARTITION BY HASH (aggregateid);
		CREATE TABLE mixed_0 PARTITION OF mixed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE UNLOGGED TABLE mixed_1 PARTITION OF mixed FOR VALUES WITH (MODULUS 2, REMAINDER 1)`
	const byRoot, byLeaf = " WITH (publish_via_partition_root = true)", " WITH (publish_via_partition_root = false)"
	cases := []struct {
		since       int // the first Postgres version that supports this
		publication string
		table       string
		wants       string // part of the error; empty: the table is pruned
	}{
		{0, "FOR TABLE outbox", "outbox", ""},
		{0, "FOR ALL TABLES", "outbox", ""},
		{0, "FOR TABLE parted" + byRoot, "parted", ""},
		{0, "FOR TABLE parted" + byLeaf, "parted", ""},
		{0, "FOR TABLE parted" + byRoot, "few", ""},
		{0, "FOR TABLE parted" + byLeaf, "few_0", ""},
		{0, "FOR ALL TABLES" + byRoot, "parted", ""},
		{0, "FOR ALL TABLES" + byLeaf, "parted", ""},
		{0, "FOR TABLE few_0, few_1, elsewhere.rest" + byLeaf, "parted", ""},
		{0, "FOR TABLE few_0, few_1, elsewhere.rest" + byRoot, "parted", ""},
		{0, "FOR TABLE few, elsewhere.rest" + byRoot, "parted", ""},
		{0, "FOR TABLE parted, few_1" + byRoot, "parted", ""},
		{15, "FOR TABLE outbox (id, aggregatetype, aggregateid, payload)", "outbox", ""},
		{15, "FOR TABLES IN SCHEMA public", "outbox", ""},
		{15, "FOR TABLES IN SCHEMA public" + byRoot, "parted", ""},
		{15, "FOR TABLES IN SCHEMA public" + byLeaf, "parted", ""},
		{15, "FOR TABLE parted, few_1 WHERE (aggregateid <> '1')" + byRoot, "parted", ""}, // the row filter does not apply here

		{0, "", "outbox", `publication "cdc" does not publish public.outbox; ALTER PUBLICATION "cdc" ADD TABLE public.outbox`},
		{0, "FOR TABLE parted; CREATE PUBLICATION more FOR TABLE outbox", "outbox", `"cdc" does not publish public.outbox;`},
		{0, "FOR TABLE outbox WITH (publish = 'update, delete')", "outbox", `publication "cdc" does not publish INSERT; ALTER PUBLICATION "cdc" SET (publish = 'insert')`},
		{0, "FOR ALL TABLES WITH (publish = 'delete')", "outbox", `does not publish INSERT`},
		{0, "FOR ALL TABLES", "outbox_unlogged", `does not publish public.outbox_unlogged, which is UNLOGGED; ALTER TABLE public.outbox_unlogged SET LOGGED`},
		{0, "FOR ALL TABLES" + byRoot, "mixed", `does not publish public.mixed_1, which is UNLOGGED`},
		{0, "FOR TABLE few_1, elsewhere.rest" + byLeaf, "parted", `does not publish public.few_0; ALTER PUBLICATION "cdc" ADD TABLE public.parted`},
		{0, "FOR TABLE few" + byRoot, "parted", `does not publish elsewhere.rest;`},
		{15, "FOR TABLES IN SCHEMA elsewhere", "outbox", `does not publish public.outbox;`},
		{15, "FOR TABLES IN SCHEMA elsewhere" + byRoot, "parted", `does not publish public.few_0;`},
		{15, "FOR TABLE outbox WHERE (aggregatetype <> 'internal')", "outbox", `publishes public.outbox with a row filter`},
		{15, "FOR TABLE parted WHERE (aggregateid <> '1')" + byRoot, "parted", `with a row filter`},
		{15, "FOR TABLE parted, few_1 WHERE (aggregateid <> '1')" + byLeaf, "parted", `publishes public.few_1 with a row filter`},
	}
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, srv, tables, false)
		r.consume(t, r.Name)
		r.insert(t, 100, 10)
		for _, table := range []string{"parted", "outbox_unlogged", "mixed"} {
			r.Exec(t, `INSERT INTO `+table+` SELECT * FROM outbox`)
		}
		r.cfg.DryRun = true
		for _, tc := range cases {
			if srv.Install().Major < tc.since {
				continue // this version cannot create it
			}
			r.Exec(t, "DROP PUBLICATION cdc; DROP PUBLICATION IF EXISTS more; CREATE PUBLICATION cdc "+tc.publication)
			r.cfg.Tables = []string{tc.table}
			report, err := Run(t.Context(), r.cfg)
			if tc.wants != "" {
				r.refused(t, report, err, tc.wants)
			} else if err != nil || report.Tables[0].Deleted == 0 {
				t.Errorf("%s, table %s: %+v, %v", tc.publication, tc.table, report, err)
			}
		}
	})
}

// refused checks that prune did nothing, and that the error contains wants.
func (r *rig) refused(t *testing.T, report Report, err error, wants string) {
	t.Helper()
	refusal, ok := errors.AsType[*NotPublishedError](err)
	if !ok || !errors.Is(err, ErrConfig) || refusal.Publication != r.cfg.Publication || !strings.Contains(err.Error(), wants) {
		t.Errorf("%v, want %q", err, wants)
	}
	if got := report.Tables[0]; got.Deleted > 0 || len(got.Dropped) > 0 {
		t.Errorf("%+v", got)
	}
}

// A partition that another session drops during the check is not one that the publication lacks.
func TestPartitionIsDroppedDuringTheCheck(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, srv, "", true)
		dropped := r.partition(t, 10, 1)
		p := &pruner{cfg: r.cfg.withDefaults()}
		if err := p.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer p.close(t.Context())
		described, err := p.describe(t.Context(), "outbox")
		if err != nil {
			t.Fatal(err)
		}
		tx := r.open(t, `DROP TABLE `+dropped)
		checked := make(chan error, 1)
		go func() { checked <- p.verifyPublished(t.Context(), described, r.cfg.Wait) }()
		r.eventually(t, "the check waits for the lock", `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%pg_get_publication_tables%')`)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-checked; err != nil {
			t.Error(err)
		}
	})
}

// An error about one table is detected before any row of the others is deleted.
func TestNotPublishedOneOfSeveral(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), plain, false)
	r.Exec(t, `CREATE TABLE billing_outbox (LIKE outbox INCLUDING ALL)`)
	r.consume(t, r.Name)
	r.insert(t, 100, 10)
	r.Exec(t, `INSERT INTO billing_outbox SELECT * FROM outbox`)
	r.cfg.Tables = []string{"outbox", "billing_outbox"}
	for _, r.cfg.DryRun = range []bool{true, false} {
		report, err := Run(t.Context(), r.cfg)
		r.refused(t, report, err, `table public.billing_outbox: publication "cdc" does not publish public.billing_outbox;`)
		r.expectRows(t, 10)
	}
	r.cfg.Publication = "none"
	report, err := Run(t.Context(), r.cfg)
	r.refused(t, report, err, `table public.outbox: publication "none" does not exist in this database`)
}

// If a table is removed from the publication while prune waits for its mark, its rows and partitions stay.
func TestNotPublishedAfterTheMark(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, r *rig, c *consumer) *running{
		"rows": func(t *testing.T, r *rig, c *consumer) *running {
			r.insert(t, 100, 10)
			c.waits.Store(true)
			return r.start(t.Context())
		},
		"partitions": func(t *testing.T, r *rig, c *consumer) *running {
			return r.startLocking(t, r.partition(t, 9, 10), c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pgtest.Server(t), "", name == "partitions")
			c := r.consume(t, r.Name)
			run := start(t, r, c)
			r.marked(t)
			r.Exec(t, `ALTER PUBLICATION cdc DROP TABLE outbox`)
			c.waits.Store(false)
			<-run.done
			r.refused(t, run.report, run.err, "does not publish public.outbox")
			r.expectRows(t, 10)
		})
	}
}

// Prune does not wait for a table that was removed from the publication while it pruned another one.
func TestNotPublishedBeforeTheMark(t *testing.T) {
	need.FullRun(t, "TestNotPublishedAfterTheMark runs always")
	t.Parallel()
	r := newRig(t, pgtest.Server(t), plain, false)
	r.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION cdc ADD TABLE other`)
	c := r.consume(t, r.Name)
	r.insert(t, 100, 1)
	r.Exec(t, `INSERT INTO other SELECT * FROM outbox`)
	r.cfg.Tables = []string{"outbox", "other"}
	r.cfg.Progress = func(string, int, int) {
		r.Exec(t, `ALTER PUBLICATION cdc DROP TABLE other`)
		c.waits.Store(true)
	}
	report, err := Run(t.Context(), r.cfg)
	if refusal, ok := errors.AsType[*NotPublishedError](err); !ok || report.Tables[0].Deleted != 1 || report.Tables[1].Confirmed != "" {
		t.Errorf("%+v, %v, %+v", refusal, err, report)
	}
}

// An ALTER TABLE has locked the table, and waits for a partition that prune has locked. Prune limits how long it
// waits for the table, so the ALTER TABLE continues first.
func TestAlterTableWhilePartitionsAreLocked(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "prune waits for locks")
	r := newRig(t, pgtest.Server(t), "", true)
	c := r.consume(t, r.Name)
	r.cfg.Wait = 3 * time.Second
	run := r.startLocking(t, r.partition(t, 9, 10), c)
	r.marked(t)
	done := r.execMeanwhile(t, `ALTER TABLE outbox ADD COLUMN note text`)
	r.eventually(t, "the table to be altered", `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	run.givesWay(t, c, done)
	r.expectRows(t, 10)
}

// No table can be added to a publication FOR ALL TABLES, which may leave tables out from Postgres 19 on. There are no binaries of
// version 19 for the tests.
func TestExceptedTableIsNotAdded(t *testing.T) {
	p := published{catalog.Publication{Name: "cdc", Insert: true, AllTables: true}, []leaf{{Name: "public.outbox", Add: "public.outbox", Logged: true}}}
	if err := p.verify(); err == nil || !strings.Contains(err.Error(), `does not publish public.outbox; ALTER PUBLICATION "cdc" SET ALL TABLES; it has that table after EXCEPT`) {
		t.Error(err)
	}
	p.AllTables = false
	if err := p.verify(); err == nil || !strings.HasSuffix(err.Error(), `does not publish public.outbox; ALTER PUBLICATION "cdc" ADD TABLE public.outbox`) {
		t.Error(err)
	}
}

// Another transaction locks the table. Prune waits for it, and then names it.
func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.consume(t, r.Name)
	r.insert(t, 100, 1)
	locker := r.Conn(t)
	for _, sql := range []string{`SET application_name = 'deploy'`, `BEGIN`, `LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE`} {
		if _, err := locker.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	r.cfg.Wait = 100 * time.Millisecond
	_, err := Run(t.Context(), r.cfg)
	if _, ok := errors.AsType[*catalog.LockError](err); !ok || !strings.Contains(err.Error(), "it waited 100ms for a lock on table public.outbox; ") || !strings.Contains(err.Error(), `application "deploy", idle in transaction, LOCK TABLE`) {
		t.Errorf("%v", err)
	}
}

// Prune finds a table as the relay does, and its children by inheritance: by its name with or without a schema, in the publication if
// the search_path does not have it, and whatever functions a schema of the search_path has.
func TestTableIsFound(t *testing.T) {
	t.Parallel()
	const hostile = `CREATE SCHEMA evil; CREATE FUNCTION evil.format(text, VARIADIC "any") RETURNS text LANGUAGE internal AS 'pg_backend_pid';
		CREATE FUNCTION evil.current_database() RETURNS name LANGUAGE sql AS $$SELECT 'another'::name$$;
		CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE sql AS $$SELECT 'x'$$;
		CREATE FUNCTION evil.format_type(oid, int) RETURNS text LANGUAGE sql AS $$SELECT 'x'$$;
		CREATE VIEW evil.pg_class AS SELECT 1 AS oid; CREATE VIEW evil.pg_inherits AS SELECT 1 AS inhparent`
	for name, tc := range map[string]struct{ path, table string }{
		"with its schema":       {"public", `"Ev ents"."Out"`},
		"search_path":           {`"Ev ents"`, `"Out"`},
		"with the database":     {"public", `$DB."Ev ents"."Out"`},
		"empty search_path":     {"''", `"Ev ents"."Out"`},
		"only in a publication": {"''", `"Out"`},
		"hostile search_path":   {"evil, pg_catalog", `"Ev ents"."Out"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
				r := newRig(t, srv, `CREATE TABLE outbox (LIKE pg_catalog.pg_aggregate);
					CREATE SCHEMA "Ev ents"; CREATE TABLE "Ev ents"."Out" (id int, created_at timestamptz);
					CREATE TABLE "Ev ents"."Child" () INHERITS ("Ev ents"."Out"); CREATE TABLE "Ev ents".out (id int)`, false)
				r.Exec(t, `ALTER PUBLICATION cdc SET TABLE "Ev ents"."Out", "Ev ents".out; `+hostile+`; ALTER DATABASE `+r.Name+` SET search_path = `+tc.path)
				r.cfg.Source = r.Conn(t).Config() // a connection that has the search_path
				r.consume(t, r.Name)
				r.Exec(t, `INSERT INTO "Ev ents"."Out" VALUES (1, '2000-01-01'), (2, now()); INSERT INTO "Ev ents"."Child" VALUES (3, '2000-01-01')`)
				r.cfg.Tables = []string{strings.ReplaceAll(tc.table, "$DB", r.Name)}
				got := r.prune(t)
				if got.Name != `"Ev ents"."Out"` || got.Deleted != 2 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// Rows of a child by inheritance that is not published were never delivered, so prune does not delete any.
func TestChildIsNotPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.Exec(t, `CREATE TABLE outbox_2027 () INHERITS (outbox)`)
	r.consume(t, r.Name)
	r.insert(t, 100, 5)
	_, err := Run(t.Context(), r.cfg)
	if _, ok := errors.AsType[*NotPublishedError](err); !ok || !strings.Contains(err.Error(), "ADD TABLE public.outbox_2027") {
		t.Errorf("%v", err)
	}
	r.expectRows(t, 5)
}
