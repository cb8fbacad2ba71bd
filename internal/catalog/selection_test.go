package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// selected returns the first column of each row of a selection.
func selected(t *testing.T, cfg replication.Config, sel Selection) ([]string, *Rows) {
	t.Helper()
	r, err := Select(t.Context(), cfg, sel)
	if err != nil {
		t.Fatalf("%+v: %v", sel, err)
	}
	defer r.Close(t.Context())
	var got []string
	if err := r.Each(t.Context(), func(values [][]byte) error {
		got = append(got, string(values[0]))
		return nil
	}); err != nil {
		t.Fatalf("%+v: %v", sel, err)
	}
	if r.Count != int64(len(got)) {
		t.Errorf("%+v: %d rows were counted, %d were returned", sel, r.Count, len(got))
	}
	return got, r
}

// Select returns the rows of the selection in its order, for any column types and any kind of table.
func TestSelect(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `
			CREATE TABLE plain (id varchar(2), position int, created_at timestamp, twice int GENERATED ALWAYS AS (position * 2) STORED);
			INSERT INTO plain VALUES ('c', 3, '2024-01-01 03:00'), ('a', 2, '2024-01-01 02:00'), ('b', 2, '2024-01-01 02:00'), ('"\', 1, '2024-01-01 01:00');
			CREATE TABLE heir () INHERITS (plain); INSERT INTO heir VALUES ('h', 9, '2024-01-01');
			CREATE TABLE parts (id bigint, created_at timestamptz) PARTITION BY RANGE (id);
			CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
			CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20);
			INSERT INTO parts VALUES (11, '2024-01-01 01:00+00'), (1, '2024-01-01 02:00+00'), (12, '2024-01-01 03:00+00')`)
		cfg := replication.Config{Conn: db.Config(t)}
		two := time.Date(2024, 1, 1, 4, 0, 0, 0, time.FixedZone("", 2*60*60))
		for name, tc := range map[string]struct {
			sel  Selection
			want []string
		}{
			"all":               {Selection{Table: "plain"}, []string{`"\`, "a", "b", "c", "h"}},
			"a condition":       {Selection{Table: "plain", Where: "position < 3 AND id <> 'a' -- not that"}, []string{`"\`, "b"}},
			"either":            {Selection{Table: "plain", Where: "position = 1 OR position = 3", Limit: 1}, []string{`"\`}},
			"since, local time": {Selection{Table: "plain", Since: two}, []string{"a", "b", "c"}},
			"since":             {Selection{Table: "parts", Since: two}, []string{"1", "12"}},
			"until, local time": {Selection{Table: "plain", Until: two}, []string{`"\`, "h"}},
			"since and until":   {Selection{Table: "parts", Since: two, Until: two.Add(time.Hour)}, []string{"1"}},
			"ids":               {Selection{Table: "plain", IDs: []string{"c", `"\`}}, []string{`"\`, "c"}},
			"ids of partitions": {Selection{Table: "parts", IDs: []string{"12", "1"}}, []string{"1", "12"}},
			"after":             {Selection{Table: "plain", After: "a"}, []string{"b", "c", "h"}},
			"after, and more":   {Selection{Table: "plain", After: `"\`, Since: two, Where: "id <> 'b'"}, []string{"a", "c"}},
		} {
			tc.sel.ID, tc.sel.Order, tc.sel.Time = []string{"id"}, []string{"position", "created_at"}, []string{"nothing", "id", "created_at"}
			got, r := selected(t, cfg, tc.sel)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if r.Time != "created_at" || len(r.Table.Columns) > 3 {
				t.Errorf("%s: the time is in %q, the columns are %v", name, r.Time, r.Table.Columns)
			}
		}
		for name, sel := range map[string]Selection{
			"an id that is cut off":     {Table: "plain", IDs: []string{"abc"}},
			"an id that is no number":   {Table: "parts", IDs: []string{"x"}},
			"a row that is not there":   {Table: "parts", After: "7"},
			"a column for two":          {Table: "plain", Where: "relname = 'x'"},
			"two statements":            {Table: "plain", Where: "true); DROP TABLE plain; SELECT (true"},
			"a parameter of ours":       {Table: "plain", Where: "id = $1"},
			"a table that is not there": {Table: "nobody"},
		} {
			sel.ID, sel.Order = []string{"id"}, []string{"position", "id"}
			if r, err := Select(t.Context(), cfg, sel); !errors.Is(err, ErrSelection) {
				t.Errorf("%s: %v", name, err)
				if err == nil {
					r.Close(t.Context())
				}
			}
		}
		if n := pgtest.QueryRow[int](t, db, "SELECT count(*)::int FROM ONLY plain"); n != 4 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A table is found by its name in errors and dead letters.
func TestTableNamed(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE SCHEMA "a.b"; CREATE TABLE "a.b".c (id int, gone int, n int GENERATED ALWAYS AS (id) STORED);
		ALTER TABLE "a.b".c DROP COLUMN gone; CREATE TABLE plain (id uuid)`)
	for name, want := range map[string]string{"a.b.c": "id integer", "public.plain": "id uuid", "plain": "", "public.nobody": ""} {
		got := ""
		table, err := TableNamed(t.Context(), replication.Config{Conn: db.Config(t)}, name)
		if err != nil {
			t.Fatal(err)
		}
		if table != nil {
			for _, c := range table.Columns {
				got += " " + c.Name + " " + c.TypeName
			}
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	db.Exec(t, `CREATE SCHEMA a; CREATE TABLE a."b.c" (id int)`)
	if _, err := TableNamed(t.Context(), replication.Config{Conn: db.Config(t)}, "a.b.c"); !errors.Is(err, replication.ErrConfig) {
		t.Errorf("two tables: %v", err)
	}
}
