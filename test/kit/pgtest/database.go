package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A DB is a database that one test uses. Its methods may be called from several goroutines.
type DB struct {
	Name   string
	DSN    string // URL for the superuser, over TCP, without TLS
	Server *pgserver.Server
	Filled string // the name that was given to FilledDatabase, or empty

	reuses bool // until drop
	mu     sync.Mutex
	idle   []*pgx.Conn // connections that are reused
}

// Database creates an empty database on the shared server. When the test ends,
// it terminates all sessions of the database and drops the database with its
// replication slots.
func Database(tb testing.TB) *DB {
	tb.Helper()
	return DatabaseOn(tb, Server(tb))
}

// DatabaseOn is like Database, but creates the database on srv.
func DatabaseOn(tb testing.TB, srv *pgserver.Server) *DB {
	tb.Helper()
	return create(tb, srv, "")
}

// EncodedDatabase is like DatabaseOn, with the given encoding rather than UTF8.
func EncodedDatabase(tb testing.TB, srv *pgserver.Server, encoding string) *DB {
	tb.Helper()
	return create(tb, srv, " ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
}

func create(tb testing.TB, srv *pgserver.Server, options string) *DB {
	tb.Helper()
	db, admin := createKept(tb, srv, options), adminOf(srv)
	tb.Cleanup(func() { db.drop(tb, admin) })
	return db
}

// createKept is like create, but nobody drops the database.
func createKept(tb testing.TB, srv *pgserver.Server, options string) *DB {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:10])
	if srv.Install().Major >= 15 {
		options += " STRATEGY file_copy" // takes Postgres half the CPU time of wal_log; earlier versions do nothing else
	}
	adminOf(srv).Exec(tb, "CREATE DATABASE "+name+options)
	return &DB{Name: name, DSN: srv.DSN(name), Server: srv, reuses: true}
}

// session calls f with a session of the database that has the settings of a new one. It reuses a connection, because
// a new one takes Postgres 6 ms of CPU time.
func (db *DB) session(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn := db.takeIdle()
	if conn != nil {
		if _, err := conn.PgConn().Exec(ctx, "DISCARD ALL").ReadAll(); err != nil { // such as after a restart of the server
			_ = conn.Close(ctx)
			conn = nil
		}
	}
	if conn == nil {
		cfg, err := pgx.ParseConfig(db.DSN)
		if err != nil {
			return err
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec // no prepared statements, because tests change tables
		if conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
			return err
		}
	}
	err := f(conn)
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.reuses && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I' {
		db.idle = append(db.idle, conn)
	} else {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

func (db *DB) takeIdle() *pgx.Conn {
	db.mu.Lock()
	defer db.mu.Unlock()
	last := len(db.idle) - 1
	if last < 0 {
		return nil
	}
	conn := db.idle[last]
	db.idle = db.idle[:last]
	return conn
}

// Disconnect closes the connections that Exec and QueryRow reuse, which may keep a server from stopping.
func (db *DB) Disconnect(tb testing.TB) {
	tb.Helper()
	for conn := db.takeIdle(); conn != nil; conn = db.takeIdle() {
		_ = conn.Close(cleanupContext(tb))
	}
}

// Config returns the parsed DSN. Each call returns a new value, which the caller may modify.
func (db *DB) Config(tb testing.TB) *pgconn.Config {
	tb.Helper()
	cfg, err := pgconn.ParseConfig(db.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}

// Conn returns a connection that is closed when the test ends.
func (db *DB) Conn(tb testing.TB) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), db.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(cleanupContext(tb)) })
	return conn
}

// Pool returns a pool that is closed when the test ends. By then the test must
// have released its connections.
func (db *DB) Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), db.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// ReplicationConn returns a connection in replication=database mode that is
// closed when the test ends. If the server has no connection left, it retries,
// because a WAL sender exits some time after its client.
func (db *DB) ReplicationConn(tb testing.TB) *pgconn.PgConn {
	tb.Helper()
	cfg := db.Config(tb)
	cfg.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(tb.Context(), cfg)
	for end := time.Now().Add(wait.Patience()); isFull(err) && time.Now().Before(end); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-tb.Context().Done():
		}
		conn, err = pgconn.ConnectConfig(tb.Context(), cfg)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(cleanupContext(tb)) })
	return conn
}

// isFull reports whether the server has no connection left (too_many_connections).
func isFull(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "53300"
}

// Exec runs sql in a session with default settings. Without args, sql can be several
// statements; with args, it must be one.
func (db *DB) Exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	err := db.session(tb.Context(), func(conn *pgx.Conn) error { return run(tb.Context(), conn, sql, args...) })
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Role creates a role that may log in, and drops it with what it owns when the test ends. Its name is that of db, because
// roles belong to the server. In the statements, $ROLE is the role.
func (db *DB) Role(tb testing.TB, statements ...string) string {
	tb.Helper()
	conn := db.Conn(tb)
	run := func(ctx context.Context, sql string) {
		tb.Helper()
		if _, err := conn.PgConn().Exec(ctx, strings.ReplaceAll(sql, "$ROLE", db.Name)).ReadAll(); err != nil {
			tb.Errorf("%s: %v", sql, err)
		}
	}
	run(tb.Context(), "CREATE ROLE "+db.Name+" LOGIN")
	tb.Cleanup(func() { run(cleanupContext(tb), "DROP OWNED BY "+db.Name+" CASCADE; DROP ROLE "+db.Name) })
	for _, sql := range statements {
		run(tb.Context(), sql)
	}
	return db.Name
}

// QueryRow runs a query in a session with default settings and returns the only
// column of its only row.
func QueryRow[T any](tb testing.TB, db *DB, sql string, args ...any) T {
	tb.Helper()
	var v T
	err := db.session(tb.Context(), func(conn *pgx.Conn) error {
		rows, err := conn.Query(tb.Context(), sql, args...)
		if err == nil {
			v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		}
		return err
	})
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return v
}

func run(ctx context.Context, conn *pgx.Conn, sql string, args ...any) error {
	if len(args) == 0 {
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		return err
	}
	_, err := conn.Exec(ctx, sql, args...)
	return err
}

// drop removes the database with its slots. It does nothing if the test has
// stopped the server, whose data directory is removed anyway.
func (db *DB) drop(tb testing.TB, admin *DB) {
	tb.Helper()
	db.Disconnect(tb)
	if !db.Server.Running() {
		return
	}
	ctx := cleanupContext(tb)
	err := admin.session(ctx, func(conn *pgx.Conn) error {
		if err := db.dropSlots(ctx, conn); err != nil {
			return fmt.Errorf("drop its slots: %w", err)
		}
		_, err := conn.Exec(ctx, "DROP DATABASE "+db.Name+" WITH (FORCE)")
		return err
	})
	if err != nil {
		tb.Errorf("drop database %s: %v", db.Name, err)
	}
}

// dropSlots terminates the WAL senders of the database's slots and drops the
// slots. It retries, because a WAL sender releases its slot some time after
// pg_terminate_backend.
func (db *DB) dropSlots(ctx context.Context, conn *pgx.Conn) error {
	for {
		var left int
		err := conn.QueryRow(ctx, `
			SELECT count(CASE WHEN active THEN pg_terminate_backend(active_pid) END)
			FROM pg_replication_slots WHERE database = $1 AND active`, db.Name).Scan(&left)
		if err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, db.Name)
	return err
}

// cleanupContext returns a context for cleanup functions. The test's own context
// is already canceled when they run.
func cleanupContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// Sleeps reports whether a session of db executes pg_sleep.
func Sleeps(tb testing.TB, db *DB) bool {
	tb.Helper()
	return QueryRow[bool](tb, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
}
