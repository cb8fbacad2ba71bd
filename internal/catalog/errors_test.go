package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A refusal is a reason for which a server rejects something. attempt triggers it on a database with a publication,
// a slot and the role "poor", and returns the error.
type refusal struct {
	since   int // major version
	attempt func(t *testing.T, s *source) error
	is      error
	says    []string // the problem, and the advice
}

// An error of a real server wraps the right sentinel, names the object, and says what to do.
func TestRefusedByServer(t *testing.T) {
	need.FullRun(t, "a server of its own for each version")
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{
			BinDir: shared.Install().BinDir, Settings: map[string]string{"max_wal_senders": "2", "max_replication_slots": "3"},
		})
		if err := srv.WriteFile("pg_hba.conf", []byte(`
host replication no_line    127.0.0.1/32 trust
host all         rejected   127.0.0.1/32 reject
host all         by_secret  127.0.0.1/32 scram-sha-256
host all         postgres,poor,nobody 127.0.0.1/32 trust
`)); err != nil {
			t.Fatal(err)
		}
		admin := &pgtest.DB{DSN: srv.DSN("postgres")}
		for _, sql := range []string{
			"CREATE ROLE no_line LOGIN REPLICATION", "CREATE ROLE rejected LOGIN REPLICATION", "CREATE ROLE poor LOGIN REPLICATION",
			"CREATE ROLE by_secret LOGIN REPLICATION PASSWORD 'right'", "SELECT pg_reload_conf()",
		} {
			admin.Exec(t, sql)
		}
		for name, tc := range refusals() {
			t.Run(name, func(t *testing.T) {
				if srv.Install().Major < tc.since {
					return
				}
				s := newSource(t, srv)
				defer admin.Exec(t, "ALTER ROLE poor LOGIN REPLICATION CONNECTION LIMIT -1")
				err := tc.attempt(t, s)
				if !errors.Is(err, tc.is) {
					t.Fatalf("%v, want %v", err, tc.is)
				}
				for _, want := range tc.says {
					if !strings.Contains(err.Error(), strings.ReplaceAll(want, "$DB", s.Name)) {
						t.Errorf("%q is missing in: %v", want, err)
					}
				}
			})
		}
	})
}

func refusals() map[string]refusal {
	// as returns an attempt to stream as a role. It first runs the statements.
	as := func(role string, before ...string) func(*testing.T, *source) error {
		return func(t *testing.T, s *source) error {
			t.Helper()
			for _, sql := range before {
				s.Exec(t, strings.ReplaceAll(sql, "$DB", s.Name))
			}
			s.cfg.Conn.User = role
			return s.openAndStart(t)
		}
	}
	return map[string]refusal{
		"unknown role":      {attempt: as("nobody"), is: replication.ErrAccess, says: []string{`as "nobody" to database "$DB"`, "create the role"}},
		"no line":           {attempt: as("no_line"), is: replication.ErrAccess, says: []string{"no pg_hba.conf entry", "no_line", `"replication" does not apply`}},
		"rejected":          {attempt: as("rejected"), is: replication.ErrAccess, says: []string{"rejected", "pg_reload_conf()"}},
		"no login":          {attempt: as("poor", "ALTER ROLE poor NOLOGIN"), is: replication.ErrAccess, says: []string{"poor", "let it log in: ALTER ROLE … LOGIN"}},
		"no replication":    {attempt: as("poor", "ALTER ROLE poor NOREPLICATION"), is: replication.ErrAccess, says: []string{`as "poor"`, "ALTER ROLE … REPLICATION"}},
		"no connect":        {attempt: as("poor", "REVOKE CONNECT ON DATABASE $DB FROM PUBLIC"), is: replication.ErrAccess, says: []string{"$DB", "GRANT CONNECT"}},
		"role's limit":      {attempt: roleLimit, is: replication.ErrBusy, says: []string{"poor", "CONNECTION LIMIT"}},
		"wrong password":    {attempt: wrongPassword, is: replication.ErrAccess, says: []string{"by_secret", "ALTER ROLE … PASSWORD", "source.dsn"}},
		"absent database":   {attempt: absentDatabase, is: replication.ErrAccess, says: []string{`"nowhere" does not exist`}},
		"all senders taken": {attempt: allSendersTaken, is: replication.ErrBusy, says: []string{"max_wal_senders", "pg_stat_replication"}},
		"all slots taken":   {attempt: allSlotsTaken, is: replication.ErrBusy, says: []string{"create slot", "max_replication_slots", "pg_replication_slots"}},
		"not the owner":     {attempt: notTheOwner, is: replication.ErrAccess, says: []string{`create publication "pub"`, "must own the tables"}},
		"may not drop":      {attempt: mayNotDrop, is: replication.ErrAccess, says: []string{"drop publication", "must be owner"}},

		"slot of another plugin": {
			attempt: ofSlot("SELECT pg_create_logical_replication_slot($1, 'test_decoding')"),
			is:      replication.ErrConfig, says: []string{`"$DB"`, "test_decoding", "another slot name"},
		},
		"physical slot": {
			attempt: ofSlot("SELECT pg_create_physical_replication_slot($1)"),
			is:      replication.ErrConfig, says: []string{`"$DB" is a physical slot`, "another slot name"},
		},
		"two-phase slot": {
			attempt: ofSlot("SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)"),
			is:      replication.ErrConfig, says: []string{`"$DB" has two_phase`, "another slot name"},
		},
		"temporary slot": {
			attempt: ofSlot("SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)"),
			is:      replication.ErrConfig, says: []string{`"$DB" is temporary`, "another slot name"},
		},
		"text that is none in UTF8": {attempt: untranslatable, is: replication.ErrRow, says: []string{"WIN1252", "associated LSN"}},
	}
}

// Each line of pg_hba.conf that does not fit is named with the one that would: for TLS or for none, for the keyword replication, which
// stands for physical replication, and for one database. The line that the error names lets the role in.
func TestLinesOfHBA(t *testing.T) {
	need.FullRun(t, "a server of its own for each version")
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})
		admin := &pgtest.DB{DSN: srv.DSN("postgres")}
		certificate := certtest.New().Issue(time.Now().Add(time.Hour), "127.0.0.1")
		for name, content := range map[string][]byte{"server.crt": certificate.Cert, "server.key": certificate.Key} {
			if err := srv.WriteFile(name, content); err != nil {
				t.Fatal(err)
			}
		}
		load := func(lines string) {
			t.Helper()
			if err := srv.WriteFile("pg_hba.conf", []byte("host all postgres 127.0.0.1/32 trust\n"+lines)); err != nil {
				t.Fatal(err)
			}
			before := pgtest.QueryRow[string](t, admin, "SELECT pg_conf_load_time()::text")
			admin.Exec(t, "SELECT pg_reload_conf()")
			wait.For(t, "the server to read its files", func() bool {
				return pgtest.QueryRow[string](t, admin, "SELECT pg_conf_load_time()::text") != before
			})
		}
		admin.Exec(t, "ALTER SYSTEM SET ssl = on")
		admin.Exec(t, "CREATE ROLE cdc LOGIN REPLICATION")
		s := newSource(t, srv)
		for name, tc := range map[string]struct{ line, sslmode, needs string }{
			"TLS only, disable":        {"hostssl all cdc 127.0.0.1/32 trust", "disable", "host $DB cdc 127.0.0.1/32"},
			"TLS only, prefer":         {"hostssl all cdc 127.0.0.1/32 trust", "prefer", ""},
			"no TLS, require":          {"hostnossl all cdc 127.0.0.1/32 trust", "require", "hostssl $DB cdc 127.0.0.1/32"},
			"no TLS, prefer":           {"hostnossl all cdc 127.0.0.1/32 trust", "prefer", ""},
			"replication only":         {"host replication cdc 127.0.0.1/32 trust", "disable", "host $DB cdc 127.0.0.1/32"},
			"replication only, TLS":    {"host replication cdc 127.0.0.1/32 trust", "require", "hostssl $DB cdc 127.0.0.1/32"},
			"the database only":        {"host $DB cdc 127.0.0.1/32 trust", "disable", ""},
			"another database, by TLS": {"host postgres cdc 127.0.0.1/32 trust", "prefer", "host $DB cdc 127.0.0.1/32"},
		} {
			t.Run(name, func(t *testing.T) {
				named := func(text string) string { return strings.ReplaceAll(text, "$DB", s.Name) }
				load(named(tc.line) + "\n")
				cfg, err := pgconn.ParseConfig(strings.NewReplacer("postgres@", "cdc@", "sslmode=disable", "sslmode="+tc.sslmode).Replace(s.DSN))
				if err != nil {
					t.Fatal(err)
				}
				attempt := &source{s.DB, s.cfg}
				attempt.cfg.Conn = cfg
				err = attempt.openAndStart(t)
				if tc.needs == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.Is(err, replication.ErrAccess) || !strings.Contains(err.Error(), named(tc.needs)+" ") {
					t.Fatalf("%v, want a line %s", err, named(tc.needs))
				}
				load(named(tc.needs) + " trust\n")
				if err := attempt.openAndStart(t); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// roleLimit uses an ordinary connection, since the limit does not count WAL senders.
func roleLimit(t *testing.T, s *source) error {
	s.Exec(t, "ALTER ROLE poor CONNECTION LIMIT 0")
	s.cfg.Conn.User = "poor"
	_, err := Inspect(t.Context(), s.cfg.Conn, s.cfg.Publication, s.cfg.Slot, nil)
	return err
}

func wrongPassword(t *testing.T, s *source) error {
	s.cfg.Conn.User, s.cfg.Conn.Password = "by_secret", "right"
	if err := s.openAndStart(t); err != nil {
		t.Fatalf("with the right password: %v", err)
	}
	s.cfg.Conn.Password = "wrong"
	err := s.openAndStart(t)
	if err != nil && strings.Contains(err.Error(), "wrong") {
		t.Errorf("the password is shown: %v", err)
	}
	return err
}

func absentDatabase(t *testing.T, s *source) error {
	s.cfg.Conn.Database = "nowhere"
	return s.openAndStart(t)
}

func allSendersTaken(t *testing.T, s *source) error {
	s.ReplicationConn(t)
	s.ReplicationConn(t)
	return s.openAndStart(t)
}

func allSlotsTaken(t *testing.T, s *source) error {
	for _, name := range []string{"_b", "_c"} {
		s.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.Name+name)
	}
	cfg := s.setup("outbox")
	cfg.Slot = "one_more"
	_, err := Setup(t.Context(), cfg)
	return err
}

func notTheOwner(t *testing.T, s *source) error {
	s.Exec(t, "DROP PUBLICATION pub")
	s.Exec(t, "SELECT pg_drop_replication_slot($1)", s.Name)
	s.cfg.Conn.User = "poor"
	_, err := Setup(t.Context(), s.setup("outbox"))
	return err
}

func mayNotDrop(t *testing.T, s *source) error {
	s.Exec(t, "ALTER ROLE poor NOREPLICATION")
	cfg := s.setup()
	cfg.Conn.User = "poor"
	_, err := Drop(t.Context(), cfg)
	return err
}

// ofSlot returns the error of Verify for a slot that sql creates in place of the correct one. The connection stays
// open, since it may be a temporary slot.
func ofSlot(sql string) func(*testing.T, *source) error {
	return func(t *testing.T, s *source) error {
		t.Helper()
		s.Exec(t, "SELECT pg_drop_replication_slot($1)", s.Name)
		conn := s.Conn(t)
		if _, err := conn.Exec(t.Context(), sql, s.Name); err != nil {
			t.Fatal(err)
		}
		defer s.Exec(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active", s.Name)
		return s.inspect(t).Verify()
	}
}

// untranslatable streams a text with a byte that its encoding does not define.
func untranslatable(t *testing.T, s *source) (err error) {
	name := s.Name + "_1252"
	s.Exec(t, "CREATE DATABASE "+name+" ENCODING WIN1252 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	db := &pgtest.DB{Name: name, DSN: s.Server.DSN(name), Server: s.Server}
	defer s.Exec(t, "DROP DATABASE "+name+" WITH (FORCE)")
	defer s.Exec(t, "SELECT pg_drop_replication_slot($1)", name)
	db.Exec(t, "CREATE TABLE outbox (id int PRIMARY KEY, payload text)")
	other := &source{DB: db, cfg: replication.Config{Conn: db.Config(t), Publication: "pub", Slot: name}}
	if _, err := Setup(t.Context(), other.setup("outbox")); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "INSERT INTO outbox VALUES (1, chr(129))")
	stream := other.start(t)
	defer stream.Close(t.Context(), 0)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	batches := make(chan *replication.Batch)
	go func() {
		defer close(batches)
		_ = stream.Run(ctx, func() pglogrepl.LSN { return 0 }, batches)
	}()
	for b := range batches {
		for _, m := range b.Messages {
			if row, ok := m.(*replication.RowError); ok {
				err = row
				cancel()
			}
		}
		b.Release()
	}
	return err
}

// A standby has a copy of the primary's slot, and cannot stream from it. The relay retries that, since another host
// of source.dsn may be the primary.
func TestSlotIsACopy(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		if shared.Install().Major < 17 {
			return
		}
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})
		s := newSource(t, srv)
		if _, err := s.ReplicationConn(t).Exec(t.Context(), "ALTER_REPLICATION_SLOT "+s.cfg.Slot+" (FAILOVER true)").ReadAll(); err != nil {
			t.Fatal(err)
		}
		standby := pgtest.Standby(t, srv, srv.Addr(), s.Name, map[string]string{"sync_replication_slots": "on"})
		s.cfg.Conn.Port = uint16(standby.Port())
		wait.For(t, "the copy is there, and complete", func() bool {
			s.Exec(t, "SELECT pg_log_standby_snapshot()") // the slot must be ahead of the standby's start
			s.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", s.cfg.Slot)
			slot := s.inspect(t).Slot
			return slot != nil && slot.Synced && !slot.Active
		})
		for what, err := range map[string]error{"Verify": s.inspect(t).Verify(), "Start": s.openAndStart(t)} {
			if !errors.Is(err, replication.ErrUnreachable) || !strings.Contains(err.Error(), "connect to the primary") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// If a stream does not start, the catalog explains it better than the error of the stream.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		if err := s.openAndStart(t); err != nil {
			t.Errorf("nothing is wrong: %v", err)
		}
		missing := &source{DB: s.DB, cfg: s.cfg}
		missing.cfg.Slot += "_x"
		if err := missing.openAndStart(t); !errors.Is(err, replication.ErrSlotMissing) || !strings.Contains(err.Error(), "outbox-cdc setup") {
			t.Errorf("slot missing: %v", err)
		}
		other := newSource(t, srv)
		other.cfg.Slot = s.cfg.Slot
		if err := other.openAndStart(t); !errors.Is(err, replication.ErrConfig) || !strings.Contains(err.Error(), "belongs to database") {
			t.Errorf("slot of another database: %v", err)
		}
		s.Exec(t, "SELECT pg_create_physical_replication_slot($1)", s.cfg.Slot+"_physical")
		defer s.Exec(t, "SELECT pg_drop_replication_slot($1)", s.cfg.Slot+"_physical")
		physical := &source{DB: s.DB, cfg: s.cfg}
		physical.cfg.Slot += "_physical"
		if err := physical.openAndStart(t); !errors.Is(err, replication.ErrConfig) {
			t.Errorf("physical slot: %v", err)
		}
		s.Exec(t, "DROP PUBLICATION pub")
		if err := s.inspect(t).Verify(); !errors.Is(err, replication.ErrPublication) {
			t.Errorf("Verify without the publication: %v", err)
		}
	})
}

func TestSlotLost(t *testing.T) {
	need.FullRun(t, "a server of its own for each version")
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		srv := pgtest.Start(t, pgserver.Config{
			BinDir:   shared.Install().BinDir,
			Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"},
		})
		s := newSource(t, srv)
		stream := s.start(t)
		for range 3 {
			s.Exec(t, "SELECT pg_switch_wal()")
			s.Exec(t, "CREATE TABLE junk AS SELECT generate_series(1, 1000)")
			s.Exec(t, "DROP TABLE junk")
		}
		s.Exec(t, "CHECKPOINT")
		err := stream.Run(t.Context(), func() pglogrepl.LSN { return 0 }, make(chan *replication.Batch, 10))
		if !errors.Is(err, replication.ErrUnreachable) {
			t.Errorf("Run: %v", err)
		}
		if err := s.openAndStart(t); !errors.Is(err, replication.ErrSlotLost) {
			t.Errorf("Start: %v", err)
		} else {
			t.Log(err)
		}
	})
}
