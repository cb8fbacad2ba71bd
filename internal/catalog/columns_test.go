package catalog

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestSentColumns: every reader of a table or its rows finds the columns that the stream has, and the reason why it
// lacks the others.
func TestSentColumns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		since, before int // major versions
		table, with   string
		want          string
		unsent        map[string]string // part of the reason
	}{
		"a generated column": {
			before: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)", want: "id body",
			unsent: map[string]string{"payload": "only from version 18 on"},
		},
		"a generated column without the option": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)", want: "id body",
			unsent: map[string]string{"payload": "publish_generated_columns = stored"},
		},
		"a generated column with the option": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)",
			with: "outbox WITH (publish_generated_columns = stored)", want: "id body payload",
		},
		"a generated column in the list": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)", with: "outbox (id, payload)", want: "id payload",
			unsent: map[string]string{"body": "column list"},
		},
		"a virtual column": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) VIRTUAL)",
			with: "outbox WITH (publish_generated_columns = stored)", want: "id body", unsent: map[string]string{"payload": "virtual"},
		},
		"a column list": {
			since: 15, table: "(id int, body text, xid xid8)", with: "outbox (body, id)", want: "id body", unsent: map[string]string{"xid": "column list"},
		},
		"no publication": {
			table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED)", with: "-", want: "id body",
			unsent: map[string]string{"payload": "generated column"},
		},
		"partitions": {table: "(id int, body text) PARTITION BY RANGE (id)", want: "id body"},
		"partitions with a generated column": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED) PARTITION BY RANGE (id)",
			with: "outbox WITH (publish_generated_columns = stored)", want: "id body payload",
		},
		"partitions, as the root": {
			since: 18, table: "(id int, body text, payload text GENERATED ALWAYS AS (upper(body)) STORED) PARTITION BY RANGE (id)",
			with: "outbox WITH (publish_generated_columns = stored, publish_via_partition_root = true)", want: "id body payload",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
				if m := srv.Install().Major; m < tc.since || tc.before != 0 && m >= tc.before {
					return
				}
				db := pgtest.DatabaseOn(t, srv)
				db.Exec(t, "CREATE TABLE outbox "+tc.table)
				if strings.Contains(tc.table, "PARTITION") {
					db.Exec(t, "CREATE TABLE part PARTITION OF outbox FOR VALUES FROM (0) TO (9)")
				}
				if tc.with == "" {
					tc.with = "outbox"
				}
				if tc.with != "-" {
					db.Exec(t, "CREATE PUBLICATION pub FOR TABLE "+tc.with)
				}
				db.Exec(t, "INSERT INTO outbox (id, body) VALUES (1, 'a')")
				cfg := replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "nobody"}
				for who, table := range sentTables(t, cfg) {
					if got := namesOf(table.Columns); got != tc.want {
						t.Errorf("%s: the columns are %q, want %q", who, got, tc.want)
					}
					reasons := make(map[string]string)
					for _, c := range table.Unsent {
						reasons[c.Name] = c.Reason
					}
					for column, reason := range tc.unsent {
						if !strings.Contains(reasons[column], reason) {
							t.Errorf("%s: %s is not sent because %q, want %q", who, column, reasons[column], reason)
						}
					}
					if len(reasons) != len(tc.unsent) {
						t.Errorf("%s: not sent are %v", who, reasons)
					}
				}
			})
		})
	}
}

func namesOf(columns []Column) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// sentTables returns the table outbox as everybody reads it who makes records of its rows.
func sentTables(t *testing.T, cfg replication.Config) map[string]Table {
	t.Helper()
	tables := make(map[string]Table)
	state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := state.Publication; p != nil {
		tables["the stream"] = p.Tables[0]
		c, err := openCopy(t, cfg, []string{"outbox"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		if len(c.Tables) != 1 {
			t.Fatalf("the copy has %d tables", len(c.Tables))
		}
		tables["the copy"] = c.Tables[0]
		var values int
		if err := c.Rows(t.Context(), &c.Tables[0], func(row [][]byte) error { values = len(row); return nil }); err != nil || values != len(c.Tables[0].Columns) {
			t.Errorf("a row of the copy has %d values: %v", values, err)
		}
	}
	rows, err := Select(t.Context(), cfg, Selection{Table: "outbox", ID: []string{"id"}, Order: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close(t.Context())
	tables["the selection"] = rows.Table
	if err := rows.Each(t.Context(), func(row [][]byte) error {
		if len(row) < len(rows.Table.Columns) || rows.XID >= len(row) {
			t.Errorf("a row of the selection has %d values", len(row))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	last, sample, err := LastRows(t.Context(), cfg, "outbox", 1)
	if err != nil || len(sample) != 1 {
		t.Fatalf("%d last rows: %v", len(sample), err)
	}
	tables["the sample"] = *last
	named, err := TableNamed(t.Context(), cfg, "public.outbox")
	if err != nil {
		t.Fatal(err)
	}
	tables["the dead letters"] = *named
	s := NewReader(cfg.Conn)
	defer s.Close(t.Context())
	found, err := s.Table(t.Context(), "outbox", state.Publication)
	if err != nil {
		t.Fatal(err)
	}
	tables["the reader"] = found.Table
	return tables
}
