package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A claimer claims in a new transaction, and commits it or rolls it back.
type claimer func(t *testing.T, consumer string, id uuid.UUID, commit bool) bool

// claimers returns the forms of Claim.
func claimers(t *testing.T, db *pgtest.DB, store inbox.Store) map[string]claimer {
	t.Helper()
	forms := make(map[string]claimer)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg := db.Conn(t).Config()
		cfg.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
		forms["pgx "+mode.String()] = func(t *testing.T, consumer string, id uuid.UUID, commit bool) bool {
			t.Helper()
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := store.Claim(t.Context(), tx, consumer, id)
			if err != nil {
				t.Fatal(err)
			}
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			return fresh
		}
	}
	pool := stdlib.OpenDB(*db.Conn(t).Config())
	t.Cleanup(func() { pool.Close() })
	forms["database/sql"] = func(t *testing.T, consumer string, id uuid.UUID, commit bool) bool {
		t.Helper()
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := store.ClaimSQL(t.Context(), tx, consumer, id)
		if err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		return fresh
	}
	return forms
}

func TestClaim(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, cfg := range []migrations.Config{{}, {Partitioned: true}, {Schema: `"My App"`}} {
			db := pgtest.DatabaseOn(t, srv)
			db.Exec(t, `CREATE SCHEMA "My App"`)
			migrate(t, db, cfg)
			store := inbox.Store{Schema: strings.Trim(cfg.Schema, `"`)}
			for name, claim := range claimers(t, db, store) {
				for _, id := range []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.New()} {
					got := []bool{
						claim(t, "mail", id, false), claim(t, "mail", id, true), claim(t, "mail", id, true), claim(t, "mail", id, false),
						claim(t, "it's \\ ☃", id, true), claim(t, "it's \\ ☃", id, true),
					}
					if diff := cmp.Diff([]bool{true, true, false, false, true, false}, got); diff != "" {
						t.Errorf("%+v: %s: fresh (-want +got):\n%s", cfg, name, diff)
					}
				}
			}
		}
	})
}

// The second of two concurrent claims waits for the first one. Its result depends on whether the first one
// commits.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := database(t, srv, migrations.Config{})
		for name, test := range map[string]struct {
			level  pgx.TxIsoLevel
			commit bool
			fresh  bool
			code   string
		}{
			"commit":              {level: pgx.ReadCommitted, commit: true},
			"rollback":            {level: pgx.ReadCommitted, fresh: true},
			"commit, snapshot":    {level: pgx.RepeatableRead, commit: true, code: "40001"},
			"rollback, snapshot":  {level: pgx.RepeatableRead, fresh: true},
			"commit, serializing": {level: pgx.Serializable, commit: true, code: "40001"},
		} {
			id := uuid.Must(uuid.NewV7())
			first, second := beginTx(t, db.Conn(t), pgx.ReadCommitted), beginTx(t, db.Conn(t), test.level)
			if _, err := inbox.Claim(t.Context(), first, "mail", id); err != nil {
				t.Fatal(err)
			}
			if _, err := second.Exec(t.Context(), `SELECT 1 FROM processed_events LIMIT 1`); err != nil { // takes the snapshot
				t.Fatal(err)
			}
			done := make(chan struct{})
			var fresh bool
			var err error
			go func() {
				defer close(done)
				fresh, err = inbox.Claim(t.Context(), second, "mail", id)
			}()
			wait.For(t, "the second claim waits", func() bool {
				return pgtest.QueryRow[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			})
			select {
			case <-done:
				t.Fatalf("%s: the second claim did not wait", name)
			default:
			}
			end := first.Rollback
			if test.commit {
				end = first.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-done
			var pgErr *pgconn.PgError
			if code := test.code; code != "" && (!errors.As(err, &pgErr) || pgErr.Code != code) || code == "" && err != nil {
				t.Errorf("%s: the second claim: %v, want code %q", name, err, code)
			}
			if fresh != test.fresh {
				t.Errorf("%s: the second claim is fresh: %t", name, fresh)
			}
			if err := second.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func beginTx(t *testing.T, conn *pgx.Conn, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestClaimArguments(t *testing.T) {
	t.Parallel()
	conn := database(t, pgtest.Server(t), migrations.Config{}).Conn(t)
	tx := beginTx(t, conn, pgx.ReadCommitted)
	id := uuid.Must(uuid.NewV7())
	for want, args := range map[string]struct {
		consumer string
		id       uuid.UUID
	}{
		"inbox: the consumer's name is empty":                  {"", id},
		"inbox: the event's id is the nil UUID":                {"mail", uuid.Nil},
		`inbox: the consumer's name "a\x00" is not valid text`: {"a\x00", id},
		`inbox: the consumer's name "\xff" is not valid text`:  {"\xff", id},
	} {
		if _, err := inbox.Claim(t.Context(), tx, args.consumer, args.id); err == nil || err.Error() != want {
			t.Errorf("Claim = %v, want %s", err, want)
		}
	}
	if fresh, err := inbox.Claim(t.Context(), tx, "mail", id); err != nil || !fresh {
		t.Errorf("Claim after wrong arguments = %t, %v", fresh, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An error about the transaction or the table has a name and explains how to fix it.
func TestClaimExplains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil string
		want  error
		says  string
	}{
		"aborted":   {"SELECT 1/0", inbox.ErrAborted, "Roll"},
		"no table":  {"DROP TABLE processed_events", inbox.ErrNoTable, "outbox-cdc migrate up --only inbox"},
		"old table": {"ALTER TABLE processed_events DROP COLUMN consumer CASCADE", inbox.ErrOldTable, "outbox-cdc migrate up --only inbox"},
	} {
		db := database(t, pgtest.Server(t), migrations.Config{})
		tx := beginTx(t, db.Conn(t), pgx.ReadCommitted)
		_, _ = tx.Exec(t.Context(), test.spoil)
		_, err := inbox.Claim(t.Context(), tx, "mail", uuid.New())
		var pgErr *pgconn.PgError
		if !errors.Is(err, test.want) || !errors.As(err, &pgErr) {
			t.Errorf("%s: Claim = %v, want it to wrap %q and the server's error", name, err, test.want)
		}
		if !errors.Is(test.want, inbox.ErrAborted) && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Claim = %v, want %q in it", name, err, test.says)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var none *sql.Tx
	if _, err := inbox.ClaimSQL(t.Context(), none, "", uuid.New()); err == nil {
		t.Error("ClaimSQL accepts an empty consumer")
	}
}
