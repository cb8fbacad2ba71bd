package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestSetupAndDrop(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `CREATE SCHEMA "my ""schema"; CREATE TABLE "my ""schema"."out;box" (id int); CREATE TABLE outbox (id int)`)
		cfg := SetupConfig{
			Conn: db.Config(t), Publication: `we"ird';DROP TABLE outbox;--`, Slot: db.Name,
			Tables: []string{`"my ""schema"."out;box"`, "outbox"},
		}
		publication, slot := fmt.Sprintf("publication %q", cfg.Publication), fmt.Sprintf("slot %q", cfg.Slot)
		step := func(f func(context.Context, SetupConfig) ([]Step, error), want ...Step) {
			t.Helper()
			got, err := f(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Step{}, "LSN")); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		}
		step(Setup, Step{Object: publication, Action: "created"}, Step{Object: slot, Action: "created"})
		step(Setup, Step{Object: publication, Action: "exists"}, Step{Object: slot, Action: "exists"})
		cfg.Operator = "nobody " + db.Name
		if _, err := Setup(t.Context(), cfg); !errors.Is(err, replication.ErrConfig) {
			t.Errorf("operator without a role: %v", err)
		}
		db.Exec(t, fmt.Sprintf("CREATE ROLE %q", cfg.Operator))
		steps, err := Setup(t.Context(), cfg)
		if err != nil || len(steps) != 5 || !strings.Contains(steps[2].Warning, "lacks REPLICATION") || steps[4].Action != "granted" {
			t.Errorf("operator: %+v, %v", steps, err)
		}
		operator := cfg.Conn.Copy()
		operator.User = cfg.Operator
		db.Exec(t, fmt.Sprintf("ALTER ROLE %q LOGIN", cfg.Operator))
		read := func() error {
			rows, err := Select(t.Context(), replication.Config{Conn: operator}, Selection{Table: cfg.Tables[0], ID: []string{"id"}, AnyOrder: true})
			if err == nil {
				rows.Close(t.Context())
			}
			return err
		}
		if err := read(); err != nil {
			t.Errorf("the operator cannot read the table: %v", err)
		}
		db.Exec(t, `CREATE TABLE child () INHERITS (outbox); CREATE TABLE parts (id int) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF parts FOR VALUES IN (1);
			ALTER PUBLICATION `+replication.QuoteIdent(cfg.Publication)+" ADD TABLE child, parts")
		cfg.Tables = append(cfg.Tables, "parts")
		if steps, err := Setup(t.Context(), cfg); err != nil || len(steps) != 7 || !strings.Contains(steps[5].Object, `"child"`) || !strings.Contains(steps[6].Object, `"parts"`) {
			t.Errorf("a child and a partition: %+v, %v", steps, err)
		}
		cfg.Tables = cfg.Tables[:2]
		db.Exec(t, "DROP TABLE child, parts")
		db.Exec(t, fmt.Sprintf(`REVOKE USAGE ON SCHEMA "my ""schema" FROM %q`, cfg.Operator))
		if err := read(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`GRANT USAGE ON SCHEMA "my ""schema" TO %q; GRANT SELECT ON "my ""schema"."out;box" TO %[1]q`, cfg.Operator)) {
			t.Errorf("without USAGE: %v", err)
		}
		db.Exec(t, fmt.Sprintf("DROP OWNED BY %q; DROP ROLE %[1]q", cfg.Operator))
		cfg.Operator = ""

		state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Verify(); err != nil {
			t.Errorf("Verify: %v", err)
		}
		p := state.Publication
		if !p.Insert || p.Update || p.Delete || p.Truncate || !p.ViaRoot || p.AllTables || len(p.Tables) != 2 {
			t.Errorf("publication %+v", p)
		}
		s := state.Slot
		if s.Plugin != plugin || s.Database != db.Name || s.TwoPhase || s.Temporary || s.ConfirmedFlushLSN == 0 {
			t.Errorf("slot %+v", s)
		}

		src := &source{DB: db, cfg: replication.Config{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot}}
		stream := src.start(t)
		db.Exec(t, `INSERT INTO "my ""schema"."out;box" VALUES (1)`)
		readWhile(t, stream, func(data []byte) bool { return data[0] != 'I' })
		if steps, err := Drop(t.Context(), cfg); steps != nil || !errors.Is(err, replication.ErrSlotInUse) {
			t.Errorf("Drop while streaming: %v, %v", steps, err)
		}
		if err := stream.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		other := db.Name + "_other"
		db.Exec(t, "CREATE PUBLICATION unused")
		db.Exec(t, "SELECT pg_create_logical_replication_slot('"+other+"', 'pgoutput')")
		kept := Step{Object: publication, Action: "kept", Warning: "slot \"" + other + "\" of this database may use it; without it, rows are lost for that slot. " +
			"To drop it too: DROP PUBLICATION " + replication.QuoteIdent(cfg.Publication)}
		step(Drop, Step{Object: slot, Action: "dropped", Warning: goneWithSlot}, kept)
		step(Setup, Step{Object: publication, Action: "exists"}, Step{Object: slot, Action: "created", Warning: formerWarning([]string{other})})
		step(Drop, Step{Object: slot, Action: "dropped", Warning: goneWithSlot}, kept)
		elsewhere := *src
		elsewhere.cfg.Publication, elsewhere.cfg.Slot = "unused", other
		stream = elsewhere.start(t) // its command names another publication
		step(Drop, Step{Object: slot, Action: "missing"}, Step{Object: publication, Action: "dropped"})
		if err := stream.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		step(Drop, Step{Object: slot, Action: "missing"}, Step{Object: publication, Action: "missing"})
		step(Setup, Step{Object: publication, Action: "created"}, Step{Object: slot, Action: "created", Warning: formerWarning([]string{other})})
		db.Exec(t, "SELECT pg_drop_replication_slot('"+other+"')")
		step(Drop, Step{Object: slot, Action: "dropped", Warning: goneWithSlot}, Step{Object: publication, Action: "dropped"})
	})
}

// If two relays start at the same time, only one creates the objects.
func TestSetupAtTheSameTime(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id int)")
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}}
	actions := make(chan string, 10)
	for range 5 {
		go func() {
			steps, err := Setup(t.Context(), cfg)
			if err != nil {
				actions <- err.Error()
				return
			}
			actions <- steps[0].Action + " " + steps[1].Action
		}()
	}
	count := make(map[string]int)
	for range 5 {
		count[<-actions]++
	}
	if diff := cmp.Diff(map[string]int{"created created": 1, "exists exists": 4}, count); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for name, tc := range map[string]struct {
			before string
			tables []string
			want   error
			text   string
		}{
			"no table named":            {tables: []string{}, want: replication.ErrConfig},
			"table missing":             {tables: []string{"nowhere.outbox"}, want: replication.ErrPublication, text: "nowhere.outbox"},
			"not a name":                {tables: []string{"a.b.c.d"}, want: replication.ErrConfig},
			"view":                      {before: "CREATE VIEW v AS SELECT 1", tables: []string{"v"}, want: replication.ErrConfig, text: "not a table"},
			"unlogged":                  {before: "CREATE UNLOGGED TABLE u (i int)", tables: []string{"u"}, want: replication.ErrConfig, text: "unlogged"},
			"publication without table": {before: "CREATE TABLE other (i int); CREATE PUBLICATION pub FOR TABLE other", want: replication.ErrPublication, text: `ADD TABLE "public"."outbox"`},
			"publication of updates":    {before: "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'update')", want: replication.ErrPublication, text: "inserts"},
			"slot without publication":  {before: "SELECT pg_create_logical_replication_slot(current_database()::text, 'pgoutput')", want: replication.ErrPublication, text: "does not exist"},
			"publication misspelled":    {before: "SELECT pg_create_logical_replication_slot(current_database()::text, 'pgoutput'); CREATE PUBLICATION other", want: replication.ErrPublication, text: `; the database has "other": if that one is meant, correct source.publication`},
			"physical slot":             {before: "CREATE PUBLICATION pub FOR TABLE outbox; SELECT pg_create_physical_replication_slot(current_database()::text)", want: replication.ErrConfig, text: "physical"},
			"two-phase slot":            {before: "CREATE PUBLICATION pub FOR TABLE outbox; SELECT pg_create_logical_replication_slot(current_database()::text, 'pgoutput', false, true)", want: replication.ErrConfig, text: "two_phase"},
		} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.DatabaseOn(t, srv)
				db.Exec(t, "CREATE TABLE outbox (id int)")
				execEach(t, db, tc.before)
				defer db.Exec(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = current_database() AND database IS NULL")
				cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: tc.tables}
				if cfg.Tables == nil {
					cfg.Tables = []string{"outbox"}
				}
				before := objects(t, db)
				steps, err := Setup(t.Context(), cfg)
				if steps != nil || !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("Setup: %v, %v, want %v with %q", steps, err, tc.want, tc.text)
				}
				if after := objects(t, db); after != before {
					t.Errorf("%s, and before %s", after, before)
				}
			})
		}
	})
}

// objects returns the names of the existing publications and slots.
func objects(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return pgtest.QueryRow[string](t, db, `SELECT concat(
		(SELECT string_agg(pubname, ',') FROM pg_publication), '|',
		(SELECT string_agg(slot_name, ',') FROM pg_replication_slots WHERE slot_name = current_database()))`)
}

func TestSetupAcceptsWhatOthersMade(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for name, before := range map[string]string{
			"all tables":            "CREATE TABLE outbox (id int); CREATE PUBLICATION pub FOR ALL TABLES",
			"more than inserts":     "CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE outbox",
			"partitioned":           "CREATE TABLE outbox (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (1) TO (9); CREATE PUBLICATION pub FOR TABLE outbox WITH (publish_via_partition_root = true)",
			"partitions one by one": "CREATE TABLE outbox (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (1) TO (9); CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')",
		} {
			t.Run(name, func(t *testing.T) {
				db := pgtest.DatabaseOn(t, srv)
				db.Exec(t, before)
				cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}}
				steps, err := Setup(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if steps[0].Action != "exists" || steps[1].Action != "created" {
					t.Errorf("steps %v", steps)
				}
			})
		}
	})
}

// Setup waits for other transactions no longer than leaves a third of the time for naming them.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := patience(t.Context()); got != 20*time.Second {
			t.Errorf("without a deadline: %s", got)
		}
		for left, want := range map[time.Duration]time.Duration{
			time.Hour: 20 * time.Second, 9 * time.Second: 6 * time.Second, time.Millisecond: 100 * time.Millisecond, 0: 100 * time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if got := patience(ctx); got != want {
				t.Errorf("%s before the deadline: %s, want %s", left, got, want)
			}
			cancel()
		}
	})
}

// Creating a slot waits for every transaction that has already written.
func TestSetupBlocked(t *testing.T) {
	need.FullRun(t, "it waits until a blocked session is seen")
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: map[string]string{"max_prepared_transactions": "5"}})
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, "CREATE TABLE outbox (id int); CREATE TABLE other (id int)")
		writer := db.Conn(t)
		begin := func(sql string) {
			t.Helper()
			if _, err := writer.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		cfg := SetupConfig{
			Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"},
			lockTimeout: 300 * time.Millisecond,
		}
		refused := func(text ...string) {
			t.Helper()
			steps, err := Setup(t.Context(), cfg)
			if older := text[0] == "create slot"; steps != nil || !errors.Is(err, replication.ErrBusy) || errors.Is(err, ErrOlderTransactions) != older {
				t.Errorf("Setup: %v, %v", steps, err)
				return
			}
			for _, want := range text {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if got := objects(t, db); got != "|" {
				t.Errorf("left behind: %s", got)
			}
		}

		begin("BEGIN; INSERT INTO other VALUES (1); SET application_name = 'billing'")
		process := fmt.Sprintf("process %d: user \"postgres\", database %q, application \"billing\", idle in transaction, BEGIN, started ", writer.PgConn().PID(), db.Name)
		refused("create slot", process)

		t.Run("canceled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			patient := cfg
			patient.lockTimeout = time.Minute
			ended := make(chan error, 1)
			go func() {
				steps, err := Setup(ctx, patient)
				if err == nil {
					err = fmt.Errorf("it ended with %v", steps)
				}
				ended <- err
			}()
			wait.For(t, "the creation of the slot waits", func() bool {
				return pgtest.QueryRow[bool](t, db, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid')")
			})
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Setup: %v", err)
			}
			if got := objects(t, db); got != "|" {
				t.Errorf("left behind: %s", got)
			}
		})

		t.Run("short of time", func(t *testing.T) {
			need.FullRun(t, "it waits for six seconds, and then has three to find out for whom") // see TestPatience
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			hurried := cfg
			hurried.lockTimeout = 0
			if steps, err := Setup(ctx, hurried); !errors.Is(err, replication.ErrBusy) || !strings.Contains(err.Error(), process) {
				t.Errorf("Setup: %v, %v", steps, err)
			}
		})

		begin("PREPARE TRANSACTION 'forgotten'")
		refused("create slot", `prepared transaction "forgotten": user "postgres"`)
		begin("ROLLBACK PREPARED 'forgotten'")

		begin("BEGIN; LOCK TABLE outbox IN SHARE MODE")
		refused("create publication", "for a lock on table public.outbox;", process)
		begin("ROLLBACK")

		begin("BEGIN; LOCK TABLE outbox IN SHARE MODE; SAVEPOINT one; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'forgotten'")
		refused("create publication", `prepared transaction "forgotten": user "postgres"`)
		begin("ROLLBACK PREPARED 'forgotten'")

		if _, err := Setup(t.Context(), cfg); err != nil {
			t.Errorf("Setup: %v", err)
		}
	})
}

// A setup does not wait for the sessions of the program's last one, whose connections may be lost.
func TestSetupEndsItsOwnSessions(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id int); CREATE TABLE other (id int)")
	writer := db.Conn(t)
	if _, err := writer.Exec(t.Context(), "BEGIN; INSERT INTO other VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, Sessions: new(Sessions)}
	lost, err := LockSlot(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close(t.Context())
	creator, err := replication.Connect(t.Context(), replication.Walsender(cfg.Conn))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sessions.add(creator)
	ended := make(chan error, 1)
	go func() {
		_, err := creator.Exec(t.Context(), "CREATE_REPLICATION_SLOT "+db.Name+" LOGICAL pgoutput").ReadAll()
		ended <- err
	}()
	wait.For(t, "the creation of the slot waits", func() bool {
		return pgtest.QueryRow[bool](t, db, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid')")
	})
	next, err := LockSlot(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(t.Context())
	if err := <-ended; err == nil {
		t.Error("the first setup has created the slot")
	}
	if got := objects(t, db); got != "|" {
		t.Errorf("left behind: %s", got)
	}
	if _, err := writer.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if steps, err := next.Setup(t.Context(), func(error) {}); err != nil || !steps[1].NewSlot() {
		t.Errorf("%v, %v", steps, err)
	}
}

// Any role can take the advisory lock of Setup and keep it. The error names the session that holds it.
func TestSetupDoesNotWaitForAStranger(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id int)")
	role := db.Name
	db.Exec(t, "CREATE ROLE "+role+" LOGIN")
	defer db.Exec(t, "DROP ROLE "+role)
	config := db.Conn(t).Config()
	config.User = role
	stranger, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(t.Context())
	if _, err := stranger.Exec(t.Context(), "SELECT pg_advisory_lock(hashtextextended('outbox-cdc setup '||$1, 0))", db.Name); err != nil {
		t.Fatal(err)
	}
	_, err = Setup(t.Context(), SetupConfig{
		Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, lockTimeout: 50 * time.Millisecond,
	})
	held, ok := errors.AsType[*advisory.HeldError](err)
	if want := fmt.Sprintf(`process %d (role "%s"`, stranger.PgConn().PID(), role); !ok || !strings.Contains(held.Holders, want) {
		t.Errorf("Setup: %v, want %s", err, want)
	}
}

// A role with only the attribute REPLICATION can read the catalog, create the slot and stream.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		role := db.Name
		db.Exec(t, "CREATE TABLE outbox (id int); CREATE ROLE "+role+" LOGIN REPLICATION")
		defer db.Exec(t, "DROP ROLE "+role)
		cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}}
		cfg.Conn.User = role
		if steps, err := Setup(t.Context(), cfg); steps != nil || !errors.Is(err, replication.ErrAccess) {
			t.Errorf("Setup without the right to create a publication: %v, %v", steps, err)
		}
		db.Exec(t, "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')")
		if _, err := Setup(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Verify(); err != nil {
			t.Errorf("Verify: %v", err)
		}
		s := &source{DB: db, cfg: replication.Config{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot}}
		stream := s.start(t)
		db.Exec(t, "INSERT INTO outbox VALUES (1)")
		readWhile(t, stream, func(data []byte) bool { return data[0] != 'I' })
		if err := stream.Close(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := stream.System().ID; got != state.SystemID {
			t.Errorf("system %s, in the catalog %s", got, state.SystemID)
		}

		if steps, err := Drop(t.Context(), cfg); steps != nil || !errors.Is(err, replication.ErrAccess) || s.inspect(t).Slot == nil {
			t.Errorf("Drop of another role's publication: %v, %v", steps, err)
		}
		db.Exec(t, "ALTER PUBLICATION pub OWNER TO "+role)
		db.Exec(t, "ALTER ROLE "+role+" NOREPLICATION")
		if _, err := replication.Open(t.Context(), s.cfg, discard()); !errors.Is(err, replication.ErrAccess) {
			t.Errorf("Open without REPLICATION: %v", err)
		}
		if _, err := Drop(t.Context(), cfg); !errors.Is(err, replication.ErrAccess) {
			t.Errorf("Drop without REPLICATION: %v", err)
		}
		if s.inspect(t).Publication == nil {
			t.Error("Drop without REPLICATION has dropped the publication")
		}
		db.Exec(t, "ALTER PUBLICATION pub OWNER TO postgres")
		db.Exec(t, "ALTER ROLE "+role+" NOLOGIN")
		if _, err := Inspect(t.Context(), cfg.Conn, "pub", "slot", nil); !errors.Is(err, replication.ErrAccess) {
			t.Errorf("Inspect without LOGIN: %v", err)
		}
		cfg.Conn.Database = "nowhere"
		cfg.Conn.User = "postgres"
		if _, err := Inspect(t.Context(), cfg.Conn, "pub", "slot", nil); !errors.Is(err, replication.ErrAccess) {
			t.Errorf("Inspect of an absent database: %v", err)
		}
	})
}

func TestSetupOfAnUnfitServer(t *testing.T) {
	need.FullRun(t, "internal/check tests the condition always")
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_level": "replica", "max_replication_slots": "1"}})
	db := pgtest.DatabaseOn(t, srv)
	db.Exec(t, "CREATE TABLE outbox (id int)")
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: "slot", Tables: []string{"outbox"}}
	refuses := func(cfg SetupConfig, want error, text string) {
		t.Helper()
		if steps, err := Setup(t.Context(), cfg); steps != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("Setup: %v, %v", steps, err)
		}
	}
	refuses(cfg, replication.ErrConfig, "wal_level")

	db.Exec(t, "ALTER SYSTEM SET wal_level = logical")
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "SELECT pg_create_physical_replication_slot('only')")
	refuses(cfg, replication.ErrBusy, "all replication slots are in use")
	if got := objects(t, db); got != "|" {
		t.Errorf("left behind: %s", got)
	}

	db.Exec(t, "CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	ascii, err := pgconn.ParseConfig(srv.DSN("ascii"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Conn = ascii
	refuses(cfg, replication.ErrConfig, "SQL_ASCII")
}

// TestSetupPublishesUpdates: Setup publishes updates if that is configured, and never deletes.
func TestSetupPublishesUpdates(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY)")
	cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}, Updates: true}
	if _, err := Setup(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := state.Publication; !p.Insert || !p.Update || p.Delete || p.Truncate {
		t.Errorf("publication %+v", p)
	}
}

// If rows are logical messages, a publication without tables is accepted.
func TestSetupForMessages(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		cfg := SetupConfig{Conn: db.Config(t), Publication: "pub", Slot: db.Name}
		if steps, err := Setup(t.Context(), cfg); steps != nil || !errors.Is(err, replication.ErrConfig) {
			t.Errorf("Setup without a table: %v, %v", steps, err)
		}
		cfg.Messages = true
		for range 2 {
			if _, err := Setup(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		state, err := Inspect(t.Context(), cfg.Conn, cfg.Publication, cfg.Slot, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Verify(); !errors.Is(err, replication.ErrPublication) {
			t.Errorf("Verify for tables: %v", err)
		}
		state.Messages = true
		var h History
		if warnings, err := h.Look(state); len(warnings) > 0 || err != nil {
			t.Errorf("Look: %v, %v", warnings, err)
		}
		if err := state.Verify(); err != nil {
			t.Errorf("Verify: %v", err)
		}
		state.Publication = nil
		if err := state.Verify(); !errors.Is(err, replication.ErrPublication) {
			t.Errorf("Verify without the publication: %v", err)
		}
	})
}
