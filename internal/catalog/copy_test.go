package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// rowsOf reads all rows of a Copy. It returns each row as "table: values".
func rowsOf(t *testing.T, c *Copy) []string {
	t.Helper()
	var all []string
	for _, table := range c.Tables {
		err := c.Rows(t.Context(), &table, func(values [][]byte) error {
			row := table.Name + ":"
			for _, v := range values {
				if v == nil {
					row += " -"
				} else {
					row += " " + string(v)
				}
			}
			all = append(all, row)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Every row is in the Copy or in the stream, even if rows are inserted while the slot is created.
func TestSetupCopyLosesNothing(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, shared *pgserver.Server) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir}) // creating the slot waits for every transaction of the server
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, payload text)")
		s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}}

		stop := make(chan struct{}, 1)
		var written atomic.Int64
		var writers sync.WaitGroup
		for range 4 {
			conn := db.Conn(t)
			writers.Go(func() {
				for len(stop) == 0 {
					_, _ = conn.Exec(t.Context(), "INSERT INTO outbox (payload) VALUES ('a'), ('b'), ('c')")
					written.Add(1)
				}
			})
		}
		more := func() {
			enough := written.Load() + 100
			wait.For(t, "more rows", func() bool { return written.Load() >= enough })
		}
		more()
		steps, c, err := setupCopy(t.Context(), s.cfg, s.setup("outbox"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		more()
		stop <- struct{}{}
		writers.Wait()
		if c.Point != steps[1].LSN || c.Point == 0 {
			t.Errorf("the copy ends at %s, the slot starts at %s", c.Point, steps[1].LSN)
		}
		copied := len(rowsOf(t, c))
		total := pgtest.QueryRow[int](t, db, "SELECT count(*)::int FROM outbox")
		stream := s.start(t)
		db.Exec(t, "INSERT INTO outbox (payload) VALUES ('last')")
		streamed := 0
		readWhile(t, stream, func(data []byte) bool {
			if data[0] == 'I' {
				streamed++
			}
			return !strings.HasSuffix(string(data), "last")
		})
		if copied == 0 || copied == total || copied+streamed != total+1 {
			t.Errorf("%d rows copied and %d streamed of %d", copied, streamed, total+1)
		}
	})
}

// While a slot is created, some transaction is always open, and all of them roll back. The xmax of the exported
// snapshot is then below its xmin, which Postgres does not accept as a pg_snapshot. That of the Copy is valid.
func TestSnapshotOfACopyAfterRollbacks(t *testing.T) {
	need.FullRun(t, "a server of its own for each version")
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{BinDir: srv.Install().BinDir}))
		db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, payload text)")
		s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}}
		begin := func() (xid string, rollback func()) {
			conn := db.Conn(t)
			tx, err := conn.Begin(t.Context())
			if err == nil {
				err = tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&xid)
			}
			if err != nil {
				t.Fatal(err)
			}
			return xid, func() { _ = conn.Close(t.Context()) }
		}
		xid, rollback := begin()
		created := make(chan error, 1)
		go func() {
			_, c, err := setupCopy(t.Context(), s.cfg, s.setup("outbox"))
			if err == nil {
				defer c.Close(t.Context())
				_, err = db.Conn(t).Exec(t.Context(), "SELECT $1::text::pg_snapshot", c.Snapshot)
			}
			created <- err
		}()
		for range 2 { // Postgres waits twice for the open transactions
			wait.For(t, "the creation waits for transaction "+xid, func() bool {
				return pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND transactionid::text = $1)`, xid)
			})
			next, rollbackNext := begin()
			rollback()
			xid, rollback = next, rollbackNext
		}
		if err := <-created; err != nil {
			t.Error(err)
		}
		rollback()
	})
}

// A Copy contains the published columns of all rows in order, including the rows of partitions. The rows of an
// inheriting table appear only under its own name.
func TestCopy(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `
			CREATE TABLE "out box" (gone int, id int, twice int GENERATED ALWAYS AS (id * 2) STORED, payload text);
			ALTER TABLE "out box" DROP COLUMN gone;
			INSERT INTO "out box" (id, payload) VALUES (2, 'b'), (1, ''), (3, NULL);
			CREATE TABLE heir () INHERITS ("out box"); INSERT INTO heir (id) VALUES (9);
			CREATE TABLE parts (id int) PARTITION BY RANGE (id);
			CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
			CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20);
			INSERT INTO parts VALUES (11), (1)`)
		cfg := replication.Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name}
		s := &source{DB: db, cfg: cfg}
		_, c, err := setupCopy(t.Context(), cfg, s.setup(`"out box"`, "parts"))
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO "out box" (id) VALUES (4)`)
		want := []string{"heir: 9 -", "out box: 2 b", "out box: 1 ", "out box: 3 -", "parts: 1", "parts: 11"}
		if diff := cmp.Diff(want, rowsOf(t, c)); diff != "" {
			t.Errorf("copied (-want +got):\n%s", diff)
		}
		c.Close(t.Context())

		// Now the slot exists already.
		if _, c, err := setupCopy(t.Context(), cfg, s.setup(`"out box"`, "parts")); c != nil || err != nil {
			t.Errorf("SetupCopy with a slot: %v, %v", c, err)
		}
		c, err = openCopy(t, cfg, []string{`"out box"`, "parts"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		if got := rowsOf(t, c); len(got) != 7 || c.Point <= s.inspect(t).Slot.ConfirmedFlushLSN {
			t.Errorf("copied %q at %s, the slot is at %s", got, c.Point, s.inspect(t).Slot.ConfirmedFlushLSN)
		}
		wait.For(t, "the temporary slot has gone", func() bool {
			return pgtest.QueryRow[int](t, db, "SELECT count(*)::int FROM pg_replication_slots WHERE database = current_database()") == 1
		})
	})
}

// openCopy opens a Copy of the tables' current rows.
func openCopy(t *testing.T, cfg replication.Config, tables []string) (*Copy, error) {
	t.Helper()
	return OpenCopy(t.Context(), SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot, Tables: tables}, cfg, nil, nil)
}

// If the session of the new slot is lost before its snapshot is used, another attempt may succeed.
func TestSnapshotIsLost(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		c, err := newCopy(t.Context(), s.cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		if err := c.begin(t.Context(), s.cfg.Publication, []string{"outbox"}, "00000003-0000001B-1"); !errors.Is(err, replication.ErrUnreachable) {
			t.Errorf("begin: %v", err)
		}
	})
}

// A CopyFilter selects rows and orders them by position, or else by the id, even if they lie in the table in another order.
func TestCopyFilter(t *testing.T) {
	t.Parallel()
	db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{}))
	db.Exec(t, "CREATE TABLE events (id int, done bool); CREATE TABLE positioned (id int, done bool, position int)")
	db.Exec(t, "INSERT INTO events VALUES (3, false), (1, true), (2, NULL), (1, false)")
	db.Exec(t, "INSERT INTO positioned VALUES (1, false, 9), (2, false, 8), (3, true, 7)")
	s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}}
	setup := s.setup("events", "positioned")
	for _, where := range []string{"no such column", "missing = 1", "true); DROP TABLE events; SELECT (true", "1"} {
		setup.Copy = CopyFilter{Where: where}
		if _, _, err := setupCopy(t.Context(), s.cfg, setup); !errors.Is(err, replication.ErrConfig) || !strings.Contains(err.Error(), "initial_copy_where") {
			t.Errorf("%s: %v", where, err)
		}
	}
	if slots := pgtest.QueryRow[int](t, db, "SELECT count(*)::int FROM pg_replication_slots"); slots != 0 {
		t.Errorf("%d slots after a wrong condition", slots)
	}
	setup.Copy = CopyFilter{Where: "done IS NOT TRUE -- comment", ID: []string{"uuid", "id"}}
	_, c, err := setupCopy(t.Context(), s.cfg, setup)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if diff := cmp.Diff([]string{"events: 1 f", "events: 2 -", "events: 3 f", "positioned: 2 f 8", "positioned: 1 f 9"}, rowsOf(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A key's rows must keep their order, and writers at the same time fill several pages of a table. Another column with the name has no order.
func TestCopyIsInTheOrderOfInsertion(t *testing.T) {
	t.Parallel()
	db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{}))
	db.Exec(t, "CREATE TABLE outbox (id int, position bigint); INSERT INTO outbox VALUES (1, 2), (2, 3), (3, 1)")
	db.Exec(t, "CREATE TABLE jobs (id int, position json); INSERT INTO jobs VALUES (3, '{}'), (1, '{}')")
	s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: "slot"}}
	_, c, err := setupCopy(t.Context(), s.cfg, s.setup("outbox", "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if diff := cmp.Diff([]string{"jobs: 3 {}", "jobs: 1 {}", "outbox: 3 1", "outbox: 1 2", "outbox: 2 3"}, rowsOf(t, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCopyErrors(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	role := db.Name
	db.Exec(t, "CREATE TABLE outbox (id int, payload text); CREATE ROLE "+role+" LOGIN REPLICATION")
	defer db.Exec(t, "DROP ROLE "+role)
	db.Exec(t, "INSERT INTO outbox VALUES (1, repeat('x', 1000))")
	s := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: db.Name, MaxMessageBytes: 500}}
	if _, err := Setup(t.Context(), s.setup("outbox")); err != nil {
		t.Fatal(err)
	}
	rows := func() error {
		t.Helper()
		c, err := openCopy(t, s.cfg, []string{"outbox"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		return c.Rows(t.Context(), &c.Tables[0], func([][]byte) error { return errors.ErrUnsupported })
	}
	if err := rows(); !errors.Is(err, replication.ErrRow) || !strings.Contains(err.Error(), "public.outbox") {
		t.Errorf("a row that is too large: %v", err)
	}
	s.cfg.MaxMessageBytes = 0
	if err := rows(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an error of the caller: %v", err)
	}
	s.cfg.Conn.User = role
	if _, err := openCopy(t, s.cfg, []string{"outbox"}); !errors.Is(err, replication.ErrAccess) {
		t.Errorf("without SELECT: %v", err)
	}
}

// The stream and a Copy format values in the same way, whatever the settings of the database and the role.
func TestSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		role := db.Name
		db.Exec(t, "CREATE ROLE "+role+" LOGIN SUPERUSER")
		defer db.Exec(t, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role)
		db.Exec(t, "CREATE TABLE outbox (t text, b bytea, f float8, r real, d timestamptz, i interval)")
		db.Exec(t, `INSERT INTO outbox VALUES ('Zoë €', '\x00ff41', 123456.123456789, 0.1, '2024-02-29 12:34:56.5+00', '1 mon 2 days 03:04:05')`)
		for name, values := range map[string][2]string{ // of the database, of the role
			"client_encoding":    {"LATIN1", "LATIN9"},
			"bytea_output":       {"escape", "escape"},
			"extra_float_digits": {"-3", "0"},
			"datestyle":          {"SQL, DMY", "German"},
			"intervalstyle":      {"iso_8601", "sql_standard"},
			"timezone":           {"Asia/Tokyo", "America/New_York"},
		} {
			db.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'; ALTER ROLE %s SET %s = '%s'", role, name, values[0], role, name, values[1]))
		}
		conn := db.Config(t)
		conn.User = role
		s := &source{DB: db, cfg: replication.Config{Conn: conn, Publication: "pub", Slot: db.Name}}
		_, c, err := setupCopy(t.Context(), s.cfg, s.setup("outbox"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		values := []string{"Zoë €", `\x00ff41`, "123456.123456789", "0.1", "2024-02-29 12:34:56.5+00", "1 mon 2 days 03:04:05"}
		if diff := cmp.Diff([]string{"outbox: " + strings.Join(values, " ")}, rowsOf(t, c)); diff != "" {
			t.Errorf("copied (-want +got):\n%s", diff)
		}

		stream := s.start(t)
		db.Exec(t, "INSERT INTO outbox SELECT * FROM outbox")
		row := readWhile(t, stream, func(data []byte) bool { return data[0] != 'I' })
		for _, v := range values {
			if !strings.Contains(string(row), v) {
				t.Errorf("the stream has %q, not %q", row, v)
			}
		}
	})
}

// Setup creates a slot with failover enabled if the server supports that, with and without a Copy. Otherwise it
// warns.
func TestSetupFailover(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for name, setup := range map[string]func(SetupConfig) ([]Step, error){
			"alone": func(cfg SetupConfig) ([]Step, error) { return Setup(t.Context(), cfg) },
			"copy": func(cfg SetupConfig) ([]Step, error) {
				steps, c, err := setupCopy(t.Context(), replication.Config{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot}, cfg)
				if err == nil {
					c.Close(t.Context())
				}
				return steps, err
			},
		} {
			db := pgtest.DatabaseOn(t, srv)
			db.Exec(t, "CREATE TABLE outbox (id int)")
			cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, Failover: true}
			steps, err := setup(cfg)
			if err != nil {
				t.Fatal(err)
			}
			state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
			if err != nil {
				t.Fatal(err)
			}
			can := srv.Install().Major >= 17
			if warning := steps[1].Warning; state.Slot.Failover != can || (warning == "") != can || !can && !strings.Contains(warning, "PostgreSQL 17") {
				t.Errorf("%s: failover %t, warning %q", name, state.Slot.Failover, warning)
			}
		}
		// Setup leaves an existing slot without failover unchanged, and warns.
		s := newSource(t, srv)
		cfg := s.setup("outbox")
		cfg.Failover = true
		if steps, err := Setup(t.Context(), cfg); err != nil || steps[1].Warning == "" {
			t.Errorf("Setup with another slot: %v, %v", steps, err)
		}
	})
}

// setupCopy calls [SlotLock.SetupCopy].
func setupCopy(ctx context.Context, cfg replication.Config, setup SetupConfig) ([]Step, *Copy, error) {
	lock, err := LockSlot(ctx, setup)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close(ctx)
	return lock.SetupCopy(ctx, cfg, nil)
}
