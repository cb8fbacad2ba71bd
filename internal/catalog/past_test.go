package catalog

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The catalog tells a table that was a part of another one, after the position of the slot, from one that was not.
func TestPast(t *testing.T) {
	t.Parallel()
	const row = "(id int PRIMARY KEY, payload text)"
	for name, tc := range map[string]struct{ before, after, want string }{
		"old table":           {"CREATE TABLE x " + row, "", ""},
		"old table, changed":  {"CREATE TABLE x " + row, "GRANT SELECT ON x TO PUBLIC; TRUNCATE x; ALTER TABLE x ADD note text; ALTER TABLE x ALTER payload SET NOT NULL; ANALYZE x; CREATE INDEX ON x (payload)", ""},
		"old table, renamed":  {"CREATE TABLE y " + row, "ALTER TABLE y RENAME TO x", ""},
		"new table":           {"", "CREATE TABLE x " + row, ""},
		"new table, changed":  {"", "CREATE TABLE x " + row + "; GRANT SELECT ON x TO PUBLIC; TRUNCATE x; ALTER TABLE x RENAME TO y; ALTER TABLE y RENAME TO x", ""},
		"new partition":       {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id)", "CREATE TABLE x PARTITION OF whole DEFAULT", ""},
		"old partition":       {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x PARTITION OF whole DEFAULT", "", ""},
		"detached":            {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x PARTITION OF whole DEFAULT", "ALTER TABLE whole DETACH PARTITION x", "attached"},
		"detached before":     {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x PARTITION OF whole DEFAULT; ALTER TABLE whole DETACH PARTITION x", "", ""},
		"created, detached":   {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id)", "CREATE TABLE x PARTITION OF whole DEFAULT; ALTER TABLE whole DETACH PARTITION x", "attached"},
		"attached":            {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x " + row, "ALTER TABLE whole ATTACH PARTITION x DEFAULT", "attached"},
		"disinherited":        {"CREATE TABLE whole " + row + "; CREATE TABLE x () INHERITS (whole)", "ALTER TABLE x NO INHERIT whole", "attached"},
		"of a renamed table":  {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x PARTITION OF whole DEFAULT", "ALTER TABLE whole RENAME TO old", "renamed"},
		"of one renamed once": {"CREATE TABLE whole " + row + " PARTITION BY RANGE (id); CREATE TABLE x PARTITION OF whole DEFAULT; ALTER TABLE whole RENAME TO old", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
				t.Parallel()
				db := pgtest.DatabaseOn(t, srv)
				execEach(t, db, tc.before)
				last := pgtest.QueryRow[string](t, db, "SELECT pg_current_xact_id()::text")
				db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Name)
				if tc.after == "" {
					advance(t, db, last)
				}
				execEach(t, db, tc.after)
				table := pgtest.QueryRow[uint32](t, db, "SELECT 'x'::regclass::oid")
				got, err := ReadPast(t.Context(), db.Config(t), db.Name, table)
				if err != nil {
					t.Fatal(err)
				}
				if kind, _, _ := strings.Cut(got.Change, " "); kind != tc.want || got.Until == 0 {
					t.Errorf("%+v, want %q", got, tc.want)
				}
				if alone := tc.want == "" && !strings.Contains(tc.after, "RENAME"); got.Alone != alone {
					t.Errorf("%+v, want Alone %t", got, alone)
				}
				if again, err := ReadPast(t.Context(), db.Config(t), db.Name, table); err != nil || again.Change != got.Change {
					t.Errorf("again: %+v, %v", again, err)
				}
			})
		})
	}
}

// A table that does not exist any more may have been anything.
func TestPastOfADroppedTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", db.Name)
	if got, err := ReadPast(t.Context(), db.Config(t), db.Name, 4_000_000_000); err != nil || got.Alone || got.Change != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// advance moves the slot's catalog_xmin beyond a transaction. A new slot begins with that of the other slots.
func advance(t *testing.T, db *pgtest.DB, xid string) {
	t.Helper()
	wait.For(t, "the slot to pass transaction "+xid, func() bool {
		db.Exec(t, "CHECKPOINT") // writes the running transactions to the WAL
		db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", db.Name)
		return pgtest.QueryRow[bool](t, db, "SELECT age($1::text::xid) > age(catalog_xmin) FROM pg_replication_slots WHERE slot_name = $2", xid, db.Name)
	})
}
