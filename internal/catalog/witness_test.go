package catalog

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A refill needs the row that was delivered last: without it, the server may be a copy that has used the ids of delivered transactions for
// other rows.
func TestWitness(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE first (payload text, position bigint NOT NULL GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id())`)
	db.Exec(t, `CREATE TABLE second (LIKE first INCLUDING ALL)`)
	db.Exec(t, `CREATE PUBLICATION pub FOR TABLE first, second`)
	db.Exec(t, `INSERT INTO first (payload) VALUES ('delivered')`)
	db.Exec(t, `INSERT INTO second (payload) VALUES ('a'), ('b')`)
	xid := pgtest.QueryRow[int64](t, db, `SELECT max(xid::text::bigint) FROM second`)
	delivered := pgtest.QueryRow[string](t, db, `SELECT pg_current_snapshot()::text`)
	db.Exec(t, `INSERT INTO second (payload) VALUES ('later')`)
	hasher := func(context.Context, *Table) (func([][]byte) (uint32, error), error) {
		return func(values [][]byte) (uint32, error) { return crc32.ChecksumIEEE(values[0]), nil }, nil
	}
	for name, tc := range map[string]struct {
		xid     int64
		payload string
		assume  Assumptions
		missing bool
	}{
		"first row":                       {xid: xid, payload: "a"},
		"second row":                      {xid: xid, payload: "b"},
		"another transaction has the row": {xid: xid - 1, payload: "a", missing: true},
		"the transaction has other rows":  {xid: xid, payload: "c", missing: true},
		"nobody knows the id":             {xid: 1 << 40, payload: "a", missing: true},
		"the operator knows better":       {xid: xid, payload: "c", assume: Assumptions{Unpruned: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing := Missing{
				Delivered: delivered, Assume: tc.assume,
				Witness: &Witness{XID: uint64(tc.xid), Hash: crc32.ChecksumIEEE([]byte(tc.payload)), Hasher: hasher},
			}
			c, err := OpenMissing(t.Context(), replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}, []string{"first", "second"}, missing)
			if errors.Is(err, ErrNoWitness) != tc.missing || (err != nil) != tc.missing {
				t.Errorf("error %v", err)
			}
			if err == nil {
				if n, err := c.Count(t.Context(), c.Tables[1]); n != 1 || err != nil {
					t.Errorf("count %d, %v", n, err)
				}
				c.Close(t.Context())
			}
		})
	}
}

// The newest row of a copy is not one that was restored from a dump: a server that has such a row may not have used the transaction ids up to
// its own.
func TestNewest(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	const columns = `payload text, position bigint NOT NULL GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id()`
	for _, table := range []string{"rows (" + columns + ")", "parted (" + columns + ") PARTITION BY LIST (payload)", "plain (payload text)", "fresh (" + columns + ")"} {
		db.Exec(t, "CREATE TABLE "+table)
	}
	db.Exec(t, `CREATE TABLE part PARTITION OF parted DEFAULT`)
	db.Exec(t, `CREATE PUBLICATION pub FOR TABLE rows, parted, plain, fresh WITH (publish = 'insert', publish_via_partition_root = true)`)
	before := pgtest.QueryRow[string](t, db, `SELECT pg_current_snapshot()::text`)
	for _, payload := range []string{"first", "changed"} {
		db.Exec(t, `INSERT INTO rows (payload) VALUES ($1)`, payload)
		db.Exec(t, `INSERT INTO parted (payload) VALUES ($1)`, payload)
		db.Exec(t, `INSERT INTO plain (payload) VALUES ($1)`, payload)
	}
	for _, table := range []string{"rows", "parted"} {
		db.Exec(t, `UPDATE `+table+` SET position = DEFAULT WHERE payload = 'changed'`)
		db.Exec(t, `DO $$ BEGIN BEGIN INSERT INTO `+table+` (payload) VALUES ('newest'); EXCEPTION WHEN division_by_zero THEN NULL; END; END $$`)
		db.Exec(t, `INSERT INTO `+table+` (payload, xid) SELECT 'restored', xid FROM unnest('{99999999,4294967296000}'::xid8[]) xid`)
	}
	until := pgtest.QueryRow[string](t, db, `SELECT pg_current_snapshot()::text`)
	db.Exec(t, `INSERT INTO rows (payload) VALUES ('after the slot')`)
	role := db.Role(t, `GRANT SELECT (payload, position, xid) ON rows TO $ROLE; GRANT SELECT (payload) ON parted, plain, fresh TO $ROLE`)

	newest := func(missing *Missing, role string) (found []string) {
		t.Helper()
		conn := db.Config(t)
		if role != "" {
			conn.RuntimeParams["role"] = role
		}
		c, err := newCopy(t.Context(), replication.Config{Conn: conn, Publication: "pub"}, missing)
		if err == nil {
			defer c.Close(t.Context())
			err = c.begin(t.Context(), "pub", []string{"rows", "parted", "plain", "fresh"}, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Tables {
			table := &c.Tables[i]
			if err := c.Newest(t.Context(), table, func(xid uint64, values [][]byte) {
				if len(values) != len(table.Columns) || xid == 0 {
					t.Errorf("%s: transaction %d, %d values", table.Name, xid, len(values))
				}
				found = append(found, table.Name+": "+string(values[0]))
			}); err != nil {
				t.Errorf("%s: %v", table.Name, err)
			}
		}
		slices.Sort(found)
		return found
	}
	for name, tc := range map[string]struct {
		missing *Missing
		role    string
		want    []string
	}{
		"a copy of all rows":      {want: []string{"parted: newest", "rows: after the slot"}},
		"the rows before a slot":  {missing: &Missing{Delivered: before, Until: until}, want: []string{"parted: newest", "rows: newest"}},
		"no row":                  {missing: &Missing{Delivered: until, Until: until}},
		"a role for some columns": {missing: &Missing{Delivered: before, Until: until}, role: role},
	} {
		if got := newest(tc.missing, tc.role); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
