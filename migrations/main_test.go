package migrations

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// pool opens db as the command line does.
func pool(t *testing.T, db *pgtest.DB) *sql.DB {
	t.Helper()
	return as(t, db, "")
}

// as is pool with another role.
func as(t *testing.T, db *pgtest.DB, role string) *sql.DB {
	t.Helper()
	cfg := db.Conn(t).Config()
	if role != "" {
		cfg.User = role
	}
	p := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { p.Close() })
	return p
}

// objects returns the tables, sequences and functions in db.
func objects(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return pgtest.QueryRow[[]string](t, db, `
		SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM (
			SELECT c.oid::regclass::text AS name FROM pg_class c
			WHERE c.relkind IN ('r', 'p', 'S') AND c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
			UNION ALL
			SELECT p.oid::regprocedure::text FROM pg_proc p
			WHERE p.pronamespace::regnamespace::text !~ '^(pg_|information_schema)'
		) AS o`)
}
