package catalog

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A start detects that the publication left out rows since a relay last ran, and so does a relay that runs, between two reads of the
// catalog. Both accept changes that leave out none, and stop at another row filter or column list, which is for a person to judge.
func TestPublishedSince(t *testing.T) {
	const (
		again    = "table public.outbox was removed and added again"
		restored = "altered and restored"
		reformed = "table public.outbox has another row filter or column list, and may have been removed and added again"
		replaced = "table public.outbox was dropped or renamed, and the one that has its name now may not have been published all the time"
		create   = "CREATE TABLE outbox (id int PRIMARY KEY, payload text);"
	)
	srv := pgtest.Server(t)
	db := pgtest.DatabaseOn(t, srv)
	from15 := regexp.MustCompile(`IN SCHEMA|WHERE|outbox \(id\)`) // publications of schemas, row filters and column lists
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}}
	inspect := func(t *testing.T) *State {
		t.Helper()
		state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, NewTables(cfg.Tables))
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	for name, tc := range map[string]struct {
		before, change string
		says           string // empty: no row is left out
	}{
		"nothing":                        {"", "SELECT 1", ""},
		"removed and added":              {"", "ALTER PUBLICATION pub DROP TABLE outbox; ALTER PUBLICATION pub ADD TABLE outbox", again},
		"dropped and created":            {"", "DROP TABLE outbox;" + create + "ALTER PUBLICATION pub ADD TABLE outbox", replaced},
		"dropped and created at once":    {"", "BEGIN; DROP TABLE outbox;" + create + "ALTER PUBLICATION pub ADD TABLE outbox; COMMIT", "table public.outbox was dropped or renamed"},
		"replaced":                       {"", "ALTER TABLE outbox RENAME TO other;" + create + "ALTER PUBLICATION pub ADD TABLE outbox", "table public.outbox was dropped or renamed"},
		"replaced at once":               {"", "BEGIN; ALTER TABLE outbox RENAME TO other;" + create + "ALTER PUBLICATION pub ADD TABLE outbox; COMMIT", ""},
		"replaced, old one removed":      {"", "BEGIN; ALTER TABLE outbox RENAME TO other;" + create + "ALTER PUBLICATION pub ADD TABLE outbox; ALTER PUBLICATION pub DROP TABLE other; COMMIT", "table public.outbox was dropped or renamed"},
		"replaced, old one added":        {"", "BEGIN; ALTER TABLE outbox RENAME TO other;" + create + "ALTER PUBLICATION pub ADD TABLE outbox; COMMIT; ALTER PUBLICATION pub DROP TABLE other; ALTER PUBLICATION pub ADD TABLE other", "table public.other was removed and added again"},
		"no inserts for a while":         {"", "ALTER PUBLICATION pub SET (publish = 'update'); ALTER PUBLICATION pub SET (publish = 'insert')", restored},
		"publication dropped":            {"", "DROP PUBLICATION pub; CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')", "dropped and re-created"},
		"UPDATEs too":                    {"", "ALTER PUBLICATION pub SET (publish = 'insert, update')", ""},
		"renamed publication":            {"", "ALTER PUBLICATION pub RENAME TO other; ALTER PUBLICATION other RENAME TO pub", restored},
		"a published table attached":     {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE other (id int); ALTER PUBLICATION pub ADD TABLE outbox", "ALTER PUBLICATION pub ADD TABLE other; ALTER TABLE outbox ATTACH PARTITION other FOR VALUES IN (1); ALTER TABLE outbox DETACH PARTITION other", ""},
		"attached, of all tables":        {"DROP PUBLICATION pub; DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert')", "ALTER TABLE outbox ATTACH PARTITION other FOR VALUES IN (2)", ""},
		"attached to a root of all":      {"DROP PUBLICATION pub; DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)", "ALTER TABLE outbox ATTACH PARTITION other FOR VALUES IN (2)", ""},
		"attached in a schema":           {"DROP PUBLICATION pub; DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR TABLES IN SCHEMA public WITH (publish = 'insert')", "ALTER TABLE outbox ATTACH PARTITION other FOR VALUES IN (2)", ""},
		"attached to a root in a schema": {"DROP PUBLICATION pub; DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR TABLES IN SCHEMA public WITH (publish = 'insert', publish_via_partition_root = true)", "ALTER TABLE outbox ATTACH PARTITION other FOR VALUES IN (2)", ""},
		"another owner":                  {"", "ALTER PUBLICATION pub OWNER TO pg_monitor", ""},
		"vacuumed":                       {"", "VACUUM (FULL, FREEZE) pg_publication; VACUUM (FULL, FREEZE) pg_publication_rel", ""},
		"a column more":                  {"", "ALTER TABLE outbox ADD note text", ""},
		"renamed":                        {"", "ALTER TABLE outbox RENAME TO events; ALTER TABLE events RENAME TO outbox", ""},
		"a neighbour":                    {"CREATE TABLE other (id int)", "ALTER PUBLICATION pub ADD TABLE other; ALTER PUBLICATION pub DROP TABLE other", ""},
		"a list of columns":              {"", "ALTER PUBLICATION pub SET TABLE outbox (id)", reformed},
		"added with a column more":       {"", "ALTER PUBLICATION pub DROP TABLE outbox; ALTER TABLE outbox ADD note text; ALTER PUBLICATION pub ADD TABLE outbox", again},
		"a row filter":                   {"", "ALTER PUBLICATION pub SET TABLE outbox WHERE (id > 5)", reformed},
		"another row filter":             {"ALTER PUBLICATION pub SET TABLE outbox WHERE (id > 5)", "ALTER PUBLICATION pub SET TABLE outbox WHERE (id > 6)", reformed},
		"a row filter removed":           {"ALTER PUBLICATION pub SET TABLE outbox WHERE (id > 5)", "ALTER PUBLICATION pub SET TABLE outbox", reformed},
		"a filtered column renamed":      {"ALTER PUBLICATION pub SET TABLE outbox WHERE (id > 5)", "ALTER TABLE outbox RENAME id TO key", ""},
		"added with another filter":      {"", "ALTER PUBLICATION pub DROP TABLE outbox; ALTER PUBLICATION pub ADD TABLE outbox WHERE (id > 5)", reformed},
		"added with a column list":       {"", "ALTER PUBLICATION pub DROP TABLE outbox; ALTER PUBLICATION pub ADD TABLE outbox (id)", reformed},
		"re-created with a filter":       {"", "DROP TABLE outbox;" + create + "ALTER PUBLICATION pub ADD TABLE outbox WHERE (id > 5)", replaced},
		"re-created with a list":         {"", "DROP TABLE outbox;" + create + "ALTER PUBLICATION pub ADD TABLE outbox (id)", replaced},
		"moved out of a schema":          {"ALTER PUBLICATION pub SET TABLES IN SCHEMA public; CREATE SCHEMA app", "ALTER TABLE outbox SET SCHEMA app; ALTER TABLE app.outbox SET SCHEMA public", again},
		"named, moved":                   {"CREATE SCHEMA app", "ALTER TABLE outbox SET SCHEMA app; ALTER TABLE app.outbox SET SCHEMA public", ""},
		"owner in a schema":              {"ALTER PUBLICATION pub SET TABLES IN SCHEMA public", "ALTER TABLE outbox OWNER TO pg_monitor; ALTER TABLE outbox RENAME TO other; ALTER TABLE other RENAME TO outbox; GRANT SELECT ON outbox TO pg_monitor; ALTER TABLE outbox ADD note text; VACUUM (FULL, FREEZE) pg_depend", ""},
		"root moved out of a schema":     {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub SET TABLES IN SCHEMA public; ALTER PUBLICATION pub SET (publish_via_partition_root = true); CREATE SCHEMA app", "ALTER TABLE outbox SET SCHEMA app; ALTER TABLE app.outbox SET SCHEMA public", again},
		"partition moved, not root":      {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub SET TABLES IN SCHEMA public; CREATE SCHEMA app", "ALTER TABLE p1 SET SCHEMA app; ALTER TABLE app.p1 SET SCHEMA public", ""},
		"schema removed and added":       {"ALTER PUBLICATION pub SET TABLES IN SCHEMA public", "ALTER PUBLICATION pub DROP TABLES IN SCHEMA public; ALTER PUBLICATION pub ADD TABLES IN SCHEMA public", again},
		"created in a schema":            {"ALTER PUBLICATION pub SET TABLES IN SCHEMA public", "DROP TABLE outbox;" + create, ""},
		"a child at once":                {"", "BEGIN; CREATE TABLE other () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE other; COMMIT", ""},
		"a child later":                  {"", "CREATE TABLE other () INHERITS (outbox); ALTER PUBLICATION pub ADD TABLE other", "table public.other was added after it was created"},
		"a published partition":          {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub ADD TABLE outbox", "CREATE TABLE p2 PARTITION OF outbox FOR VALUES IN (2); ALTER PUBLICATION pub ADD TABLE p2", ""},
		"a partition by itself":          {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub ADD TABLE p1", "CREATE TABLE p2 PARTITION OF outbox FOR VALUES IN (2); ALTER PUBLICATION pub ADD TABLE p2", "table public.p2 was added after it was created"},
		"another schema":                 {"ALTER PUBLICATION pub SET TABLES IN SCHEMA public; CREATE SCHEMA app", "ALTER PUBLICATION pub ADD TABLES IN SCHEMA app; ALTER PUBLICATION pub DROP TABLES IN SCHEMA app", ""},
		"a partition":                    {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub ADD TABLE outbox", "CREATE TABLE p2 PARTITION OF outbox FOR VALUES IN (2); DROP TABLE p1", ""},
		"partition removed and added":    {"DROP TABLE outbox; CREATE TABLE outbox (id int) PARTITION BY LIST (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1); ALTER PUBLICATION pub ADD TABLE p1", "ALTER PUBLICATION pub DROP TABLE p1; ALTER PUBLICATION pub ADD TABLE p1", "table public.p1 was removed and added again"},
	} {
		if srv.Install().Major < 15 && from15.MatchString(tc.before+tc.change) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			execEach(t, db, create+"CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')")
			defer execEach(t, db, "DROP PUBLICATION pub; DROP TABLE IF EXISTS outbox, other; DROP SCHEMA IF EXISTS app")
			execEach(t, db, tc.before)
			was := inspect(t)
			recorded := was.Published()
			if strings.HasPrefix(tc.change, "BEGIN") {
				db.Exec(t, tc.change)
			} else {
				execEach(t, db, tc.change)
			}
			now := inspect(t)
			err := now.CheckPublished(recorded)
			if tc.says == "" && err != nil || tc.says != "" && !errors.Is(err, replication.ErrPublication) {
				t.Fatalf("recorded %s, now %s: %v", recorded, now.Published(), err)
			}
			if err != nil && (!strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "are not delivered: "+instructReplay)) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if past, ok := errors.AsType[*LeftOutError](err); ok && (!strings.Contains(past.Reason(), tc.says) || strings.Contains(past.Reason(), "outbox-cdc ")) {
				t.Errorf("the reason alone: %s", past.Reason())
			}
			if err := now.CheckPublished(now.Published()); err != nil {
				t.Errorf("nothing has changed since: %v", err)
			}
			if err := now.CheckUnaltered(recorded); (err != nil) != (tc.says != "" || now.Publication.version != was.Publication.version) {
				t.Errorf("an operator recovers: %v", err)
			}
			was.Slot, now.Slot = look(0).Slot, look(1).Slot
			var h History
			if _, err := h.Look(was); err != nil {
				t.Fatal(err)
			}
			_, watched := h.Look(now)
			if past, ok := errors.AsType[*LeftOutError](watched); ok != (tc.says != "") || ok && !strings.Contains(past.Reason(), tc.says) || !ok && watched != nil {
				t.Errorf("a relay that runs: %v, want %q", watched, tc.says)
			}
		})
	}
}

// A table that becomes an outbox had rows that nobody has sent, unless it was created together with its publication, or it is the successor
// of one.
func TestTableBecomesAnOutbox(t *testing.T) {
	for name, tc := range map[string]struct {
		change string
		tables []string
		says   string
	}{
		"a neighbour":     {"", []string{"outbox", "other"}, "table public.other was no outbox when the position was recorded"},
		"added later":     {"CREATE TABLE third (id int); ALTER PUBLICATION pub ADD TABLE third", []string{"outbox", "third"}, "table public.third was no outbox"},
		"added at once":   {"BEGIN; CREATE TABLE third (id int); ALTER PUBLICATION pub ADD TABLE third; COMMIT", []string{"outbox", "third"}, ""},
		"a successor":     {"BEGIN; ALTER TABLE outbox RENAME TO third; CREATE TABLE outbox (id int); ALTER PUBLICATION pub ADD TABLE outbox; COMMIT", []string{"outbox"}, ""},
		"under its names": {"ALTER TABLE outbox RENAME TO third", []string{"third"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			execEach(t, db, "CREATE TABLE outbox (id int); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR TABLE outbox, other WITH (publish = 'insert')")
			inspect := func(tables ...string) *State {
				t.Helper()
				state, err := Inspect(t.Context(), db.Config(t), "pub", db.Name, NewTables(tables))
				if err != nil {
					t.Fatal(err)
				}
				return state
			}
			recorded := inspect("outbox").Published()
			if strings.HasPrefix(tc.change, "BEGIN") {
				db.Exec(t, tc.change)
			} else {
				execEach(t, db, tc.change)
			}
			now := inspect(tc.tables...)
			if err := now.CheckKnown(recorded); (err != nil) != (tc.says != "") || err != nil && (!strings.HasPrefix(err.Error(), tc.says) || !strings.Contains(err.Error(), "replay --table "+tc.tables[1])) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if err := now.CheckKnown(now.Published()); err != nil {
				t.Errorf("recorded since: %v", err)
			}
		})
	}
}

// Two outbox tables that take each other's names were published all the time.
func TestOutboxesSwapNames(t *testing.T) {
	db := pgtest.Database(t)
	execEach(t, db, "CREATE TABLE outbox (id int); CREATE TABLE other (id int); CREATE PUBLICATION pub FOR TABLE outbox, other WITH (publish = 'insert')")
	inspect := func() *State {
		t.Helper()
		state, err := Inspect(t.Context(), db.Config(t), "pub", db.Name, NewTables([]string{"outbox", "other"}))
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	recorded := inspect().Published()
	db.Exec(t, "ALTER TABLE outbox RENAME TO third; ALTER TABLE other RENAME TO outbox; ALTER TABLE third RENAME TO other")
	if err := inspect().CheckPublished(recorded); err != nil {
		t.Error(err)
	}
}

// A relay that was configured with another publication does not know what the new one has published before. The instruction is for those
// who created it in time.
func TestAnotherPublication(t *testing.T) {
	was, now := look(0), look(0)
	now.Publication.Name, now.Publication.oid = now.Publication.Name+"_2", was.Publication.oid+1
	err := now.CheckPublished(was.Published())
	past, ok := errors.AsType[*LeftOutError](err)
	if !ok || !errors.Is(err, replication.ErrPublication) || !strings.Contains(err.Error(), InstructRecover) || !strings.Contains(err.Error(), "older than that position: start the relay once with outbox-cdc run --accept-gap") {
		t.Fatal(err)
	}
	if strings.Contains(past.Reason(), "outbox-cdc ") || strings.Contains(err.Error(), "re-created") {
		t.Error(err)
	}
}

// A record without a publication, or with a forged one, does not stop a relay.
func TestPublishedUnknown(t *testing.T) {
	for _, recorded := range []string{"", "null", "{}", "[1]", `{"oid": "x"}`} {
		if err := look(0).CheckPublished(recorded); err != nil {
			t.Errorf("%s: %v", recorded, err)
		}
	}
}

// Tables that the catalog gains or loses while it is read do not end the check.
func TestPublishedWhileTablesChange(t *testing.T) {
	was, now := look(0), look(1)
	now.Publication.members = append(now.Publication.members, member{oid: 201, table: 301, schema: "public", name: "p1"}) // not yet in Tables
	now.Outboxes = append(now.Outboxes, Outbox{Configured: "p1", Parts: []Part{{OID: 301, Schema: "public", Name: "p1"}}}, Outbox{Configured: "gone"})
	if err := now.CheckPublished(was.Published()); err != nil {
		t.Error(err)
	}
	now.Publication = nil
	if err := now.CheckPublished(was.Published()); err != nil || now.Published() != "" {
		t.Errorf("%q, %v", now.Published(), err)
	}
}
