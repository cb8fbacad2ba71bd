package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A refill would not send the rows of a table that is no outbox any more, and would drop the slot that has them.
func TestFormerOutboxes(t *testing.T) {
	t.Parallel()
	const (
		put     = "INSERT INTO outbox DEFAULT VALUES"
		renamed = "ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL); ALTER PUBLICATION pub ADD TABLE outbox"
		dropped = "DROP TABLE outbox; CREATE TABLE outbox (xid xid8 NOT NULL DEFAULT pg_current_xact_id()); ALTER PUBLICATION pub ADD TABLE outbox"
	)
	for name, tc := range map[string]struct{ after, says string }{
		"the same":                  {put, ""},
		"renamed":                   {renamed + ";" + put, ""},
		"renamed, with a row":       {put + ";" + renamed, `table public.outbox_old was an outbox when the position was recorded, and may have rows that are not delivered; to send them too: outbox-cdc recover --dsn "$OPERATOR_DSN" --set outbox.tables=public.outbox_old,outbox`},
		"renamed, not published":    {put + ";" + renamed + "; ALTER PUBLICATION pub DROP TABLE outbox_old", `to send them too: ALTER PUBLICATION "pub" ADD TABLE public.outbox_old, as the owner of the table, then outbox-cdc recover`},
		"dropped":                   {dropped + ";" + put, ""},
		"dropped, with a row":       {put + ";" + dropped, "inserted since the publication has it once more"},
		"dropped, unpublished":      {put + "; DROP PUBLICATION pub; CREATE PUBLICATION pub; " + dropped, "table public.outbox was dropped"},
		"dropped, stuck":            {put + "; DROP PUBLICATION pub; " + put + "; CREATE PUBLICATION pub; " + dropped, `the slot cannot send its rows, because the publication did not exist later on; those that were not delivered are lost unless the present table has them; to go on with these: outbox-cdc setup --drop --dsn "$OWNER_DSN", then outbox-cdc setup --dsn "$OWNER_DSN", then outbox-cdc replay --where "NOT pg_visible`},
		"dropped, without the slot": {put + ";" + dropped + "; SELECT pg_drop_replication_slot('$slot')", ""},
		"dropped, child, never recorded": {`CREATE TABLE later () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE later;
			INSERT INTO later DEFAULT VALUES; DROP TABLE later`, "table public.later was dropped"},
		"dropped, child, without a row": {"CREATE TABLE later () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE later;" + put + "; DROP TABLE later", ""},
		"dropped, neighbour":            {"CREATE TABLE other (n int); ALTER PUBLICATION pub ADD TABLE other; INSERT INTO other VALUES (1); DROP TABLE other", ""},
		"renamed, without a column":     {"ALTER TABLE outbox DROP COLUMN xid;" + renamed, "table public.outbox_old was an outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
				t.Parallel()
				db := pgtest.DatabaseOn(t, srv)
				inspect := func() *State { return inspectOutbox(t, db) }
				execEach(t, db, "CREATE TABLE outbox (xid xid8 NOT NULL DEFAULT pg_current_xact_id()); CREATE PUBLICATION pub FOR TABLE outbox")
				execEach(t, db, put)
				db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Name)
				recorded := inspect().Published()
				delivered := pgtest.QueryRow[string](t, db, "SELECT pg_current_snapshot()::text")
				execEach(t, db, strings.ReplaceAll(tc.after, "$slot", db.Name))
				err := inspect().CheckFormer(t.Context(), db.Config(t), recorded, delivered)
				if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, ErrRefill) || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("%v, want %q", err, tc.says)
				}
			})
		})
	}
}

// A refill would not send the rows of a partition that was detached or dropped while they waited, and would drop the slot that has them.
func TestFormerPartitions(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		for name, tc := range map[string]struct{ after, says string }{
			"the same": {"INSERT INTO outbox VALUES (1), (2)", ""},
			"detached": {"INSERT INTO outbox VALUES (1), (2); ALTER TABLE outbox DETACH PARTITION one", "1 rows of table public.outbox that are not delivered are not in it any more: a partition was detached or dropped"},
			"dropped":  {"INSERT INTO outbox VALUES (1); DROP TABLE one", "start the relay once with outbox-cdc run --accept-gap"},
			"left out, too": {`INSERT INTO outbox VALUES (1); ALTER PUBLICATION pub SET (publish = 'update'); INSERT INTO outbox VALUES (2), (2);
				ALTER PUBLICATION pub SET (publish = 'insert'); DROP TABLE one`, "1 rows of table public.outbox"},
			"without xid":     {"INSERT INTO outbox VALUES (1); ALTER TABLE outbox DROP COLUMN xid", ""},
			"delivered":       {"DROP TABLE one; INSERT INTO outbox VALUES (2)", ""},
			"not in the slot": {"DROP PUBLICATION pub; INSERT INTO outbox VALUES (1); DROP TABLE one; CREATE PUBLICATION pub FOR TABLE outbox WITH (publish_via_partition_root = true)", ""},
		} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.DatabaseOn(t, srv)
				inspect := func() *State { return inspectOutbox(t, db) }
				execEach(t, db, `CREATE TABLE outbox (n int, xid xid8 NOT NULL DEFAULT pg_current_xact_id()) PARTITION BY LIST (n);
					CREATE TABLE one PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE rest PARTITION OF outbox DEFAULT;
					CREATE PUBLICATION pub FOR TABLE outbox WITH (publish_via_partition_root = true)`)
				db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Name)
				db.Exec(t, "INSERT INTO outbox VALUES (1), (2)")
				recorded := inspect().Published()
				delivered := pgtest.QueryRow[string](t, db, "SELECT pg_current_snapshot()::text")
				execEach(t, db, tc.after)
				err := inspect().CheckFormer(t.Context(), db.Config(t), recorded, delivered)
				if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, ErrRefill) || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("%v, want %q", err, tc.says)
				}
			})
		}
	})
}

// inspectOutbox reads the catalog of publication pub, table outbox and the slot that is called as the database.
// A table that became an outbox after the position was recorded cannot have a delivered row. Of another one, without any, undelivered rows
// may have been deleted too.
func TestMissingRowsOfALaterChild(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		execEach(t, db, `CREATE TABLE outbox (n int, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), position bigserial);
			CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert'); INSERT INTO outbox (n) VALUES (1)`)
		missing := Missing{Recorded: inspectOutbox(t, db).Published(), Delivered: pgtest.QueryRow[string](t, db, "SELECT pg_current_snapshot()::text")}
		execEach(t, db, `CREATE TABLE later () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE later; INSERT INTO later (n) VALUES (2)`)
		for _, step := range []struct {
			before string
			pruned bool
		}{{"SELECT", false}, {"DELETE FROM ONLY outbox; INSERT INTO outbox (n) VALUES (3)", true}} {
			execEach(t, db, step.before)
			c, err := OpenMissing(t.Context(), replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}, []string{"outbox"}, missing)
			if err == nil {
				c.Close(t.Context())
			}
			if errors.Is(err, ErrPruned) != step.pruned || err != nil && !strings.Contains(err.Error(), `"outbox" has no delivered row`) {
				t.Errorf("after %s: %v", step.before, err)
			}
		}
	})
}

func inspectOutbox(t *testing.T, db *pgtest.DB) *State {
	t.Helper()
	state, err := Inspect(t.Context(), db.Config(t), "pub", db.Name, NewTables([]string{"outbox"}))
	if err != nil {
		t.Fatal(err)
	}
	return state
}
