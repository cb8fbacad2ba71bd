package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// The statement for the columns that a refill needs works for a partition, too: Postgres lets one alter them only at the root.
func TestRefillAlterOfAPartition(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		for name, columns := range map[string]string{"no columns": "", "wrong columns": ", xid bigint, position text", "without a default": ", xid xid8, position bigint"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := pgtest.DatabaseOn(t, srv)
				db.Exec(t, `CREATE TABLE root (day int`+columns+`) PARTITION BY RANGE (day)`)
				db.Exec(t, `CREATE TABLE middle PARTITION OF root FOR VALUES FROM (1) TO (9) PARTITION BY RANGE (day)`)
				db.Exec(t, `CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (1) TO (9)`)
				reader := NewReader(db.Config(t))
				defer reader.Close(t.Context())
				alter := func() string {
					details, err := reader.Table(t.Context(), "leaf", nil)
					if err != nil {
						t.Fatal(err)
					}
					return details.RefillAlter
				}
				for statement := range strings.SplitSeq(alter(), "; ") {
					statement = strings.Replace(statement, "xid TO …", "xid TO old_xid", 1)
					statement = strings.Replace(statement, "position TO …", "position TO old_position", 1)
					db.Exec(t, strings.Replace(statement, "TO …", "TO PUBLIC", 1))
				}
				if left := alter(); left != "" {
					t.Errorf("after it: %s", left)
				}
			})
		}
	})
}

// A refill that continues an interrupted one sends the rows of that one first, even if later rows come before them in the order
// of insertion, because their transactions took longer. No row is sent twice.
func TestRefillParts(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE outbox (position bigint NOT NULL GENERATED ALWAYS AS IDENTITY, payload text, xid xid8 NOT NULL DEFAULT pg_current_xact_id())`)
	db.Exec(t, `CREATE PUBLICATION pub FOR TABLE outbox`)
	snapshot := func() string { return pgtest.QueryRow[string](t, db, `SELECT pg_current_snapshot()::text`) }
	insert := func(payload string) { db.Exec(t, `INSERT INTO outbox (payload) VALUES ($1)`, payload) }
	insert("delivered")
	missing := Missing{Delivered: snapshot()}
	slow, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), `INSERT INTO outbox (payload) VALUES ('slow')`); err != nil {
		t.Fatal(err)
	}
	insert("first")
	insert("second")
	missing.Earlier = append(missing.Earlier, snapshot())
	insert("third")
	missing.Earlier = append(missing.Earlier, snapshot())
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert("last")
	for _, until := range []string{"", snapshot()} {
		missing.Until = until
		c, err := OpenMissing(t.Context(), replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}, []string{"outbox"}, missing)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]string
		for _, part := range c.Parts() {
			var payloads []string
			for _, row := range rowsOf(t, part) { // outbox: position payload xid
				payloads = append(payloads, strings.Fields(row)[2])
			}
			got = append(got, payloads)
		}
		if diff := cmp.Diff([][]string{{"first", "second"}, {"third"}, {"slow", "last"}}, got); diff != "" {
			t.Errorf("until %q (-want +got):\n%s", until, diff)
		}
		if n, err := c.Count(t.Context(), c.Tables[0]); n != 5 || err != nil {
			t.Errorf("count: %d, %v", n, err)
		}
		c.Close(t.Context())
	}
}
