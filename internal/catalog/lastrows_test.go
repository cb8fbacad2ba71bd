package catalog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestLastRows(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "ALTER DATABASE "+db.Name+" SET bytea_output = 'escape'")
		db.Exec(t, `
			CREATE TABLE plain (gone int, id int, raw bytea, twice int GENERATED ALWAYS AS (2 * id) STORED, "Text" text);
			ALTER TABLE plain DROP COLUMN gone;
			INSERT INTO plain (id, raw, "Text") SELECT n, '\x00ff', nullif(n, 9999)::text || repeat('x', 200) FROM generate_series(1, 10000) n;
			CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at);
			CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
			CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
			CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM ('2024-03-01') TO ('2024-04-01');
			INSERT INTO parts VALUES (1, '2024-01-01'), (2, '2024-01-02'), (3, '2024-02-01');
			CREATE TABLE hollow (id int, filler text);
			INSERT INTO hollow SELECT n, repeat('x', 1000) FROM generate_series(1, 1000) n;
			DELETE FROM hollow WHERE id > 2;
			CREATE TABLE empty (id int)`)
		for _, tt := range []struct {
			table string
			n     int
			want  []string // the first column
		}{
			{"plain", 3, []string{"9998", "9999", "10000"}},
			{"parts", 2, []string{"2", "3"}},
			{"parts", 9, []string{"1", "2", "3"}},
			{"parts_1", 9, []string{"1", "2"}},
			{"hollow", 3, []string{"1", "2"}},
			{"empty", 3, nil},
		} {
			table, rows, err := LastRows(t.Context(), replication.Config{Conn: db.Config(t)}, tt.table, tt.n)
			if err != nil {
				t.Errorf("%s: %v", tt.table, err)
				continue
			}
			var got []string
			for _, row := range rows {
				got = append(got, string(row[0]))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.table, diff)
			}
			if tt.table != "plain" {
				continue
			}
			if row := rows[1]; string(row[1]) != `\x00ff` || row[2] != nil || len(table.Columns) != 3 || table.Columns[2].Name != "Text" {
				t.Errorf("row %q of columns %+v", row, table.Columns)
			}
		}
		if _, _, err := LastRows(t.Context(), replication.Config{Conn: db.Config(t)}, "nobody", 1); !errors.Is(err, replication.ErrPublication) {
			t.Errorf("a missing table: %v", err)
		}
	})
}

func TestVerifyOutboxes(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `
		CREATE TABLE parts (id int) PARTITION BY HASH (id);
		CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE plain (id int);
		CREATE PUBLICATION leaves FOR TABLE parts_0, parts_1;
		CREATE PUBLICATION half FOR TABLE parts_0;
		CREATE PUBLICATION root FOR TABLE parts WITH (publish_via_partition_root = true);
		CREATE TABLE parent (id int);
		CREATE PUBLICATION parent FOR TABLE parent;
		CREATE TABLE child () INHERITS (parent);
		CREATE PUBLICATION family FOR TABLE parent;
		CREATE TABLE empty (id int) PARTITION BY HASH (id);
		CREATE PUBLICATION of_empty FOR TABLE empty;
		CREATE UNLOGGED TABLE unlogged (id int);
		CREATE TABLE half_logged (id int) PARTITION BY HASH (id);
		CREATE UNLOGGED TABLE half_logged_0 PARTITION OF half_logged FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE PUBLICATION everything FOR ALL TABLES`)
	for _, tt := range []struct {
		publication, table string
		want               error
	}{
		{"leaves", "parts", nil},
		{"leaves", "parts_0", nil},
		{"half", "parts", replication.ErrPublication},
		{"root", "parts", nil},
		{"root", "parts_1", replication.ErrConfig}, // rows of parts_0 come with it
		{"root", "plain", replication.ErrPublication},
		{"everything", "plain", nil},
		{"everything", "nobody", replication.ErrPublication},
		{"parent", "parent", replication.ErrPublication}, // a child was added later
		{"family", "parent", nil},
		{"everything", "parent", nil},
		{"root", "empty", replication.ErrPublication},
		{"of_empty", "empty", nil},
		{"everything", "unlogged", replication.ErrConfig},
		{"everything", "half_logged", replication.ErrPublication},
	} {
		t.Run(fmt.Sprintf("%s of %s", tt.table, tt.publication), func(t *testing.T) {
			state, err := Inspect(t.Context(), db.Config(t), tt.publication, "no_slot", NewTables([]string{tt.table}))
			if err != nil {
				t.Fatal(err)
			}
			if err := state.VerifyOutboxes(); !errors.Is(err, tt.want) {
				t.Errorf("VerifyOutboxes() = %v, want %v", err, tt.want)
			}
		})
	}
}
