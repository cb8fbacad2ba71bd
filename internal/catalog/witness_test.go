package catalog

import (
	"context"
	"errors"
	"hash/crc32"
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
