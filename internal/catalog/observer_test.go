package catalog

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// connections returns the process ids of the idle connections with the given application name.
func (s *source) connections(t *testing.T, application string) []int32 {
	t.Helper()
	return pgtest.QueryRow[[]int32](t, s.DB, `SELECT COALESCE(array_agg(pid), '{}') FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND state = 'idle'`, application)
}

// leastPrivileged makes s connect as a role that only has the attribute REPLICATION.
func (s *source) leastPrivileged(t *testing.T) {
	t.Helper()
	role := "cdc_" + s.Name
	s.Exec(t, "CREATE ROLE "+role+" LOGIN REPLICATION")
	s.cfg.Conn.User = role
}

// An observer returns the same state as Inspect. It uses one connection with an application name of its own, and
// needs only the attribute REPLICATION.
func TestObserver(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.leastPrivileged(t)
		o := Observe(s.cfg, nil)
		same := cmp.Options{cmp.AllowUnexported(Publication{}, member{}, Table{}, Column{}, Slot{}), cmpopts.IgnoreFields(State{}, "ReadAt", "WALEnd", "Oldest"), cmpopts.IgnoreFields(Slot{}, "InactiveSince")}
		for range 3 {
			want, err := Inspect(t.Context(), s.cfg.Conn, s.cfg.Publication, s.cfg.Slot, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := o.Inspect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, same); diff != "" {
				t.Errorf("state (-Inspect +Observer):\n%s", diff)
			}
		}
		if pids := s.connections(t, "outbox-cdc watch"); len(pids) != 1 {
			t.Errorf("connections %v, want one", pids)
		}
		o.Close(t.Context())
		wait.For(t, "the connection is closed", func() bool { return len(s.connections(t, "outbox-cdc watch")) == 0 })
	})
}

// If the connection is lost, one look fails. If the connection is old, the observer replaces it and no look fails.
func TestObserverConnectsAgain(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	s.cfg.Conn.RuntimeParams["application_name"] = "orders"
	o := Observe(s.cfg, nil)
	defer o.Close(t.Context())
	look := func() int32 {
		t.Helper()
		if _, err := o.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		var pids []int32
		wait.For(t, "the server has ended all connections but one", func() bool {
			pids = s.connections(t, "orders watch")
			return len(pids) == 1
		})
		return pids[0]
	}
	first := look()
	if again := look(); again != first {
		t.Errorf("connection %d, and then %d", first, again)
	}
	s.Exec(t, "SELECT pg_terminate_backend($1)", first)
	wait.For(t, "the connection is gone", func() bool { return len(s.connections(t, "orders watch")) == 0 })
	if _, err := o.Inspect(t.Context()); !errors.Is(err, replication.ErrUnreachable) {
		t.Errorf("look over a lost connection: %v", err)
	}
	second := look()
	o.opened = o.opened.Add(-2 * maxObserverAge)
	if third := look(); third == second {
		t.Error("the connection is kept for ever: a smart shutdown would wait for it")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := o.Inspect(ctx); !errors.Is(err, stop) {
		t.Errorf("look after the end: %v", err)
	}
	if _, err := o.EmitSnapshot(ctx, "l"); !errors.Is(err, stop) {
		t.Errorf("snapshot after the end: %v", err)
	}
	look()
}

// A smart shutdown waits for ordinary connections without notifying them. The observer notices it when it replaces
// its connection, and then no longer delays it. The WAL senders stop after all other connections have ended.
func TestObserverLetsServerStop(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{})
	s := newSource(t, srv)
	o := Observe(s.cfg, nil)
	defer o.Close(t.Context())
	if _, err := o.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := s.Conn(t)
	s.Disconnect(t)
	postmaster, err := os.FindProcess(srv.PID())
	if err == nil {
		err = postmaster.Signal(syscall.SIGTERM)
	}
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "new connections are refused", func() bool {
		_, err := Inspect(t.Context(), s.cfg.Conn, "pub", "slot", nil)
		return err != nil
	})
	if _, err := o.Inspect(t.Context()); err != nil || !srv.Running() {
		t.Fatalf("the connection has ended before its time: %v, running %t", err, srv.Running())
	}
	o.opened = o.opened.Add(-2 * maxObserverAge)
	if _, err := o.Inspect(t.Context()); !errors.Is(err, replication.ErrUnreachable) {
		t.Errorf("Inspect: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := o.Wait(ctx); err != nil || !srv.Running() {
		t.Errorf("Wait: %v, running %t", err, srv.Running())
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the server stops", func() bool { return !srv.Running() })
}

// Wait returns at once on a fast shutdown. The shutdown then takes only as long as closing a stream that nobody
// reads. If somebody terminates the connection, Wait continues.
func TestObserverNoticesAFastShutdown(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		// Without Wait, the shutdown would wait for the stream for ever.
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: map[string]string{"wal_sender_timeout": "0"}})
		s := newSource(t, srv)
		stream := s.start(t) // nobody reads it
		s.Exec(t, "ALTER TABLE outbox ADD pad text")
		s.Exec(t, "INSERT INTO outbox SELECT i, repeat('x', 1000000) FROM generate_series(1, 40) i")
		o := Observe(stream.Config(), nil)
		defer o.Close(t.Context())
		waited := make(chan error, 1)
		go func() {
			err := o.Wait(t.Context())
			_ = stream.Close(t.Context(), 0)
			waited <- err
		}()
		var first []int32
		wait.For(t, "it connects", func() bool {
			first = s.connections(t, "outbox-cdc watch")
			return len(first) == 1
		})
		s.Exec(t, "SELECT pg_terminate_backend($1)", first[0])
		wait.For(t, "it connects again", func() bool {
			now := s.connections(t, "outbox-cdc watch")
			return len(now) == 1 && now[0] != first[0]
		})
		wait.For(t, "more is sent than a socket takes", func() bool {
			return pgtest.QueryRow[bool](t, s.DB, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event IN ('WalSenderWriteData', 'WalSndWriteData'))`)
		})
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; !errors.Is(err, replication.ErrServerStopping) {
			t.Errorf("Wait: %v", err)
		}
	})
}

// The stream contains a snapshot after every transaction that the snapshot sees, and only if the configuration
// requests messages.
func TestEmitSnapshot(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.leastPrivileged(t)
		s.cfg.MessagePrefix = MessagePrefix
		stream := s.start(t)
		o := Observe(stream.Config(), nil)
		defer o.Close(t.Context())
		if _, err := o.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Exec(t, "INSERT INTO outbox VALUES (1)")
		if changed, err := o.EmitSnapshot(t.Context(), `or"d'ers`); changed || err != nil {
			t.Fatal(changed, err)
		}
		s.Exec(t, "INSERT INTO outbox VALUES (2)")
		kinds, message := readUntil(t, stream, 2)
		// Postgres 14 also sends empty transactions.
		if want := "B R I C B M C B I C"; !strings.HasSuffix(strings.Join(kinds, " "), want) {
			t.Errorf("the stream has %s, want %s", strings.Join(kinds, " "), want)
		}
		xmax := pgtest.QueryRow[string](t, s.DB, "SELECT pg_snapshot_xmax($1::pg_snapshot)::text", message[strings.LastIndex(message, "|")+1:])
		if !strings.Contains(message, "outbox-cdc\x00") || !strings.Contains(message, `or"d'ers|`) || xmax == "" {
			t.Errorf("message %q", message)
		}
		if !pgtest.QueryRow[bool](t, s.DB, `SELECT bool_and(pg_visible_in_snapshot(t.xid, $1::pg_snapshot) = (t.id = 1))
			FROM (SELECT id, xmin::text::xid8 AS xid FROM outbox) t`, message[strings.LastIndex(message, "|")+1:]) {
			t.Errorf("%q does not distinguish the transaction before it from the one after it", message)
		}
	})
}

// While a partition is unlogged, its rows are not in the WAL, so no snapshot is written that sees them.
func TestEmitSnapshotOfAnUnloggedPartition(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		s.Exec(t, `DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY) PARTITION BY RANGE (id);
			CREATE TABLE part PARTITION OF outbox FOR VALUES FROM (1) TO (9); ALTER PUBLICATION pub ADD TABLE outbox`)
		s.cfg.MessagePrefix = MessagePrefix
		o := Observe(s.cfg, NewTables([]string{"outbox"}))
		defer o.Close(t.Context())
		if _, err := o.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			change  string
			changed bool
		}{{"SELECT", false}, {"ALTER TABLE part SET UNLOGGED", true}, {"ALTER TABLE part SET LOGGED", false}} {
			s.Exec(t, step.change)
			if changed, err := o.EmitSnapshot(t.Context(), "nonce"); changed != step.changed || err != nil {
				t.Errorf("after %s: changed %t, %v", step.change, changed, err)
			}
		}
	})
}

// A snapshot is not written if a transaction that is visible in it may have written rows that are not published.
func TestEmitSnapshotOfChangedTables(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for name, change := range map[string]string{
			"nothing":               "SELECT",
			"another table":         "CREATE TABLE another (id int)",
			"table replaced":        "ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old)",
			"table dropped":         "DROP TABLE outbox",
			"child":                 "CREATE TABLE child () INHERITS (outbox)",
			"table removed":         "ALTER PUBLICATION pub DROP TABLE outbox",
			"table removed, added":  "ALTER PUBLICATION pub DROP TABLE outbox; ALTER PUBLICATION pub ADD TABLE outbox",
			"inserts not published": "ALTER PUBLICATION pub SET (publish = 'delete')",
			"publication dropped":   "DROP PUBLICATION pub",
			"schema removed, added": "ALTER PUBLICATION pub DROP TABLES IN SCHEMA public; ALTER PUBLICATION pub ADD TABLES IN SCHEMA public",
		} {
			t.Run(name, func(t *testing.T) {
				s := newSource(t, srv)
				if strings.HasPrefix(name, "schema") {
					if srv.Install().Major < 15 {
						return
					}
					s.Exec(t, "ALTER PUBLICATION pub SET TABLES IN SCHEMA public")
				}
				o := Observe(s.cfg, NewTables([]string{"outbox"}))
				defer o.Close(t.Context())
				if _, err := o.Inspect(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.Exec(t, change)
				want := name != "nothing" && name != "another table"
				if changed, err := o.EmitSnapshot(t.Context(), "nonce"); changed != want || err != nil {
					t.Errorf("changed %t, %v, want %t", changed, err, want)
				}
				if _, err := o.Inspect(t.Context()); err != nil {
					t.Fatal(err)
				}
				if changed, err := o.EmitSnapshot(t.Context(), "nonce"); changed || err != nil {
					t.Errorf("after another look: changed %t, %v", changed, err)
				}
			})
		}
	})
}

// readUntil reads the stream until it has received the given number of rows and their commit. It returns the
// message types and the last logical message.
func readUntil(t *testing.T, stream *replication.Stream, rows int) (kinds []string, message string) {
	t.Helper()
	readWhile(t, stream, func(data []byte) bool {
		kind := string(data[:1])
		kinds = append(kinds, kind)
		switch kind {
		case "I":
			rows--
		case "M":
			message = string(data)
		}
		return kind != "C" || rows > 0
	})
	return kinds, message
}

// If a server does not respond, a look ends at most a second after the caller's deadline.
func TestObserverOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, remote := net.Pipe()
		gone := make(chan struct{})
		go func() { // accepts the client, and then only reads
			defer close(gone)
			_ = walsender.New(remote).Accept()
			_, _ = io.Copy(io.Discard, remote)
		}()
		conn, err := pgconn.ParseConfig("host=127.0.0.1 user=u database=app sslmode=disable connect_timeout=0")
		if err != nil {
			t.Fatal(err)
		}
		conn.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		dialed := false
		conn.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			if dialed {
				return nil, net.ErrClosed
			}
			dialed = true
			return client, nil
		}
		o := Observe(replication.Config{Conn: conn, Publication: "pub", Slot: "slot"}, nil)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := o.Inspect(ctx); !errors.Is(err, replication.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect: %v", err)
		}
		if took := bubble.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("took %s", took)
		}
		if _, err := o.Inspect(t.Context()); !errors.Is(err, replication.ErrUnreachable) {
			t.Errorf("Inspect after that: %v", err)
		}
		_ = remote.Close() // pgx closes its side in the background, and may lose the deadline for that
		<-gone
		if _, err := Inspect(t.Context(), conn, "pub", "slot", nil); !errors.Is(err, replication.ErrUnreachable) {
			t.Errorf("the function Inspect after that: %v", err)
		}
	})
}

// Inspect reads the slot's columns of each Postgres version.
func TestInspectSlot(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		got := s.inspect(t).Slot
		if got.SafeWALSize != nil || got.WALStatus != "reserved" || got.Failover {
			t.Errorf("slot %+v", got)
		}
		if known := srv.Install().Major >= 17; known == got.InactiveSince.IsZero() {
			t.Errorf("inactive since %s", got.InactiveSince)
		}
		if srv.Install().Major >= 17 {
			s.Exec(t, "SELECT pg_drop_replication_slot($1)", s.cfg.Slot)
			s.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true)", s.cfg.Slot)
			if !s.inspect(t).Slot.Failover {
				t.Error("failover is not read")
			}
		}
	})
}

// BenchmarkObserverInspect measures a look: the time of client and server, and the allocations of the client.
func BenchmarkObserverInspect(b *testing.B) {
	db := pgtest.Database(b)
	db.Exec(b, "CREATE TABLE outbox (id int PRIMARY KEY, payload text)")
	cfg := replication.Config{Conn: db.Config(b), Publication: "pub", Slot: db.Name}
	if _, err := Setup(b.Context(), SetupConfig{Conn: cfg.Conn, Publication: "pub", Slot: db.Name, Tables: []string{"outbox"}}); err != nil {
		b.Fatal(err)
	}
	o := Observe(cfg, nil)
	defer o.Close(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Inspect(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
