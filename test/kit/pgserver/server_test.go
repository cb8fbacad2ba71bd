//go:build unix

package pgserver

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

func TestMain(m *testing.M) {
	Init()
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	began := time.Now()
	s, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Postgres %s on %s in %v", s.Install(), s.Addr(), time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var got string
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestServerLivesThroughEveryKindOfStop(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	s := start(t, Config{Settings: map[string]string{"application_name": "it's quoted"}})
	created := query(t, s, "SELECT pg_create_logical_replication_slot('kept', 'pgoutput')::text")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for _, c := range []struct {
		name string
		stop func(context.Context) error
	}{
		{"shutdown", s.Shutdown},
		{"immediate", s.Immediate},
		{"kill", s.Kill},
		{"nothing", func(context.Context) error { return nil }},
	} {
		pid, addr := s.PID(), s.Addr()
		began := time.Now()
		if err := c.stop(ctx); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		stopped := time.Now()
		if err := s.Restart(ctx); err != nil {
			t.Fatalf("Restart after %s: %v", c.name, err)
		}
		t.Logf("%s %v, start %v", c.name, stopped.Sub(began).Round(time.Millisecond), time.Since(stopped).Round(time.Millisecond))
		if alive(pid) || s.PID() == pid || s.Addr() != addr {
			t.Errorf("after %s: pid %d → %d, address %s → %s", c.name, pid, s.PID(), addr, s.Addr())
		}
		if got := query(t, s, "SELECT format('(%s,%s)', slot_name, confirmed_flush_lsn) FROM pg_replication_slots"); got != created {
			t.Errorf("after %s: slot %s, want %s", c.name, got, created)
		}
	}
}

// Shutdown waits for a WAL sender whose client does not read. It returns when
// the test kills the server.
func TestShutdownWaitsForAWalsender(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	s := start(t, Config{})
	conn, err := pgconn.Connect(t.Context(), s.DSN("postgres")+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := pglogrepl.CreateReplicationSlot(t.Context(), conn, "deaf", "pgoutput", pglogrepl.CreateReplicationSlotOptions{}); err != nil {
		t.Fatal(err)
	}
	query(t, s, "SELECT pg_logical_emit_message(true, 'prefix', repeat('x', 30000000))::text")
	err = pglogrepl.StartReplication(t.Context(), conn, "deaf", 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'none'", "messages 'true'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	waiting := make(chan error)
	go func() { waiting <- s.Shutdown(ctx) }()
	for tick := time.Tick(5 * time.Millisecond); !strings.Contains(s.LogTail(), "received fast shutdown request"); <-tick {
		if ctx.Err() != nil {
			t.Fatal("no shutdown request in the log")
		}
	}
	if !s.Running() {
		t.Fatal("the server has exited without waiting for the WAL sender")
	}
	if err := s.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("Shutdown after the server was killed: %v", err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestStopWorksWithoutTime(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	s := start(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: %v", err)
	}
	if _, err := os.Stat(s.DataDir()); !os.IsNotExist(err) || s.Running() {
		t.Errorf("running %t, data directory: %v", s.Running(), err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart after Stop")
	}
}

func TestStartReportsTheServersWords(t *testing.T) {
	_, err := Start(t.Context(), Config{Settings: map[string]string{"wal_level": "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
}

func TestFetchedServerRuns(t *testing.T) {
	need.FullRun(t, "every suite that starts a server stops it")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var last Progress
	calls := 0
	began := time.Now()
	install, err := Fetch(ctx, 0, func(p Progress) { last = p; calls++ })
	if err != nil {
		need.Missing(t, "no Postgres to fetch: %v", err)
	}
	t.Logf("%s in %s after %v, %d reports, last %+v", install, install.BinDir, time.Since(began).Round(time.Millisecond), calls, last)
	if calls > 0 && (!last.Unpacking || last.Bytes != last.Total) {
		t.Errorf("last report %+v", last)
	}
	s := start(t, Config{BinDir: install.BinDir})
	t.Log(query(t, s, "SELECT version()"))
}
