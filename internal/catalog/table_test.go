package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A role without rights on the schema finds a table by its name, as SQL reads it.
func TestOutboxNames(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	role := db.Name
	db.Exec(t, `CREATE ROLE `+role+` LOGIN; CREATE TABLE outbox (id int);
		CREATE SCHEMA "App"; CREATE TABLE "App"."Events" (id int); CREATE TABLE "App".outbox (id int); CREATE TABLE "App".hidden (id int);
		CREATE TABLE "App".whole (id int) PARTITION BY RANGE (id); CREATE TABLE first_part PARTITION OF "App".whole DEFAULT;
		CREATE TABLE "App".empty (id int) PARTITION BY RANGE (id);
		CREATE PUBLICATION pub FOR TABLE "App"."Events", "App".hidden, "App".whole, "App".empty`)
	defer db.Exec(t, "DROP ROLE "+role)
	cfg := db.Config(t)
	cfg.User = role
	for name, want := range map[string]string{
		"outbox": "public.outbox", "OUTBOX": "public.outbox", "public.outbox": "public.outbox", `"public" . outbox`: "public.outbox",
		`"App"."Events"`: "App.Events", `"App".outbox`: "App.outbox", `App.outbox`: "", "hidden": "App.hidden",
		"whole": "App.whole,public.first_part", "empty": "App.empty", `"Events"`: "App.Events", "events": "",
		db.Name + ".public.outbox": "public.outbox", "nobody": "",
	} {
		state, err := Inspect(t.Context(), cfg, "pub", "slot", NewTables([]string{name}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range state.Outboxes[0].Parts {
			got = append(got, p.text())
		}
		if diff := cmp.Diff(want, strings.Join(got, ",")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"", "a b", "a.b.c.d", "other.public.outbox", `"open`} {
		if _, err := Inspect(t.Context(), cfg, "pub", "slot", NewTables([]string{name})); !errors.Is(err, replication.ErrConfig) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What a schema of the search_path has under the name of a function of Postgres changes nothing.
func TestHostileSearchPath(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, `CREATE SCHEMA evil;
			CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
			CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
			CREATE FUNCTION evil.current_database() RETURNS name LANGUAGE sql AS $$SELECT 'another'::name$$;
			CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
			CREATE FUNCTION evil.substr(text, int, int) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
			CREATE FUNCTION evil.array_length(anyarray, int) RETURNS int LANGUAGE sql AS 'SELECT 9';
			CREATE VIEW evil.pg_class AS SELECT 1; CREATE VIEW evil.pg_publication AS SELECT 1; CREATE VIEW evil.pg_replication_slots AS SELECT 1`)
		s.Exec(t, "ALTER DATABASE "+s.Name+" SET search_path = evil, pg_catalog, public")
		s.Exec(t, `INSERT INTO outbox VALUES (1, 'x')`)
		state, err := Inspect(t.Context(), s.cfg.Conn, s.cfg.Publication, s.cfg.Slot, NewTables([]string{"outbox"}))
		if err != nil || state.Database != s.Name || state.Verify() != nil || len(state.Carriers()) != 1 {
			t.Fatalf("%+v, %v", state, err)
		}
		rows, err := Select(t.Context(), s.cfg, Selection{Table: "outbox", ID: []string{"id"}, AnyOrder: true})
		if err != nil || rows.Count != 1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		rows.Close(t.Context())
		if _, last, err := LastRows(t.Context(), s.cfg, "outbox", 1); err != nil || len(last) != 1 {
			t.Errorf("%v, %v", last, err)
		}
	})
}

// A hookedConn calls hook before each statement, with their number.
type hookedConn struct {
	executor

	statements int
	hook       func(statement int)
}

func (c *hookedConn) ExecParams(ctx context.Context, sql string, values [][]byte, oids []uint32, valueFormats, resultFormats []int16) *pgconn.ResultReader {
	c.statements++
	c.hook(c.statements)
	return c.executor.ExecParams(ctx, sql, values, oids, valueFormats, resultFormats)
}

// A partition is attached or detached while the catalog is read. The outbox and its publication have the same tables then.
func TestTablesChangeWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Conn(t)
	const attach, detach = `ALTER TABLE outbox ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)`, `ALTER TABLE outbox DETACH PARTITION p2`
	db.Exec(t, `CREATE TABLE outbox (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (0) TO (10);
		CREATE TABLE p2 (id int); CREATE PUBLICATION pub FOR TABLE outbox`)
	for statement, more := 1, true; more; statement++ {
		for _, change := range []string{attach, detach} {
			hooked := &hookedConn{executor: conn.PgConn()}
			hooked.hook = func(n int) {
				if n == statement {
					db.Exec(t, change)
				}
			}
			state, err := inspect(t.Context(), hooked, "pub", "slot", NewTables([]string{"outbox"}))
			if err != nil {
				t.Fatal(err)
			}
			if more = hooked.statements >= statement; !more {
				break
			}
			var published, parts []string
			for _, table := range state.Publication.Tables {
				published = append(published, table.Name)
			}
			for _, part := range state.Outboxes[0].Parts[1:] {
				parts = append(parts, part.Name)
			}
			slices.Sort(published)
			slices.Sort(parts)
			if !slices.Equal(published, parts) {
				t.Errorf("%q before statement %d: %q are published, %q are parts", change, statement, published, parts)
			}
		}
	}
}
