package catalog

import (
	"strconv"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// The WAL end is after every committed transaction, and after the position of an inactive slot.
func TestSlotProgress(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	missing, err := ReadSlotProgress(t.Context(), db.Config(t), "no_such_slot")
	if err != nil || missing.Exists || missing.Active || missing.Confirmed != 0 || missing.SystemID == "" || missing.Timeline != 1 {
		t.Errorf("%+v, %v", missing, err)
	}
	slot := "progress_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	defer db.Exec(t, `SELECT pg_drop_replication_slot($1)`, slot)
	db.Exec(t, `CREATE TABLE t (id int)`)
	db.Exec(t, `INSERT INTO t VALUES (1)`)
	got, err := ReadSlotProgress(t.Context(), db.Config(t), slot)
	if err != nil || !got.Exists || got.Active || got.Confirmed == 0 || got.Confirmed >= got.WALEnd || got.WALEnd <= missing.WALEnd {
		t.Errorf("%+v, %v; before %+v", got, err, missing)
	}
}

// If a table has no column with the order of insertion, Select orders it by id, if the caller accepts that.
func TestRowsOfAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `CREATE TABLE bare (id text); INSERT INTO bare VALUES ('b'), ('a')`)
	got, r := selected(t, replication.Config{Conn: db.Config(t)}, Selection{Table: "bare", ID: []string{"id"}, Order: []string{"position"}, AnyOrder: true})
	if len(got) != 2 || got[0] != "a" || r.Order != "" {
		t.Errorf("%v in the order of %q", got, r.Order)
	}
}
