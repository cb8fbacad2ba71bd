package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
)

// historyTable records what was applied, in the schema of the tables it is about.
const historyTable = "outbox_cdc_migrations"

// A history is the migrations applied to one outbox table or inbox. It exists only while there is something
// to remember: the first Insert creates its table and the last Delete drops it, each in the
// transaction of the migration itself. Reading therefore creates nothing, and finds version 0
// where there is no table.
//
// Writing happens under locker's lock only.
type history struct {
	sql         string // name of the history table in SQL
	table       string // of which outbox table; of an inbox that of the claims
	partitioned bool   // the form that Insert records
}

func newHistory(t tableName, partitioned bool) history {
	return history{sql: t.sibling(name{text: historyTable}), table: t.table.text, partitioned: partitioned}
}

// An entry is one applied migration.
type entry struct {
	version     int64
	partitioned bool
	at          time.Time
}

var _ database.StoreExtender = history{}

// entries returns what was applied, newest first.
func (h history) entries(ctx context.Context, db database.DBTxConn) (_ []entry, err error) {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, h.sql).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	rows, err := db.QueryContext(ctx,
		`SELECT version, partitioned, applied_at FROM `+h.sql+` WHERE table_name = $1 ORDER BY version DESC`, h.table)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var all []entry
	for rows.Next() {
		var e entry
		if err := rows.Scan(&e.version, &e.partitioned, &e.at); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, rows.Err()
}

// Tablename is part of goose's store.
func (h history) Tablename() string { return h.sql }

// TableExists tells goose that there is nothing to create up front.
func (h history) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable is part of goose's store. The schema must exist.
func (h history) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+h.sql+` (
		table_name  text        NOT NULL,
		version     bigint      NOT NULL,
		partitioned boolean     NOT NULL,
		applied_at  timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (table_name, version)
	);
	COMMENT ON TABLE `+h.sql+` IS 'Which migrations of outbox-cdc were applied to which outbox table, or inbox (processed_events), of this schema.'`)
	return err
}

// Insert records that a version was applied.
func (h history) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	if err := h.CreateVersionTable(ctx, db); err != nil {
		return fmt.Errorf("create %s: %w", h.sql, err)
	}
	_, err := db.ExecContext(ctx, `INSERT INTO `+h.sql+` (table_name, version, partitioned) VALUES ($1, $2, $3)`,
		h.table, req.Version, h.partitioned)
	return err
}

// Delete records that a version was undone.
func (h history) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if _, err := db.ExecContext(ctx,
		`DELETE FROM `+h.sql+` WHERE table_name = $1 AND version = $2`, h.table, version); err != nil {
		return err
	}
	var used bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM `+h.sql+`)`).Scan(&used); err != nil || used {
		return err
	}
	_, err := db.ExecContext(ctx, `DROP TABLE `+h.sql)
	return err
}

// GetMigration is part of goose's store.
func (h history) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	all, err := h.entries(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.version == version {
			return &database.GetMigrationResult{Timestamp: e.at, IsApplied: true}, nil
		}
	}
	return nil, database.ErrVersionNotFound
}

// GetLatestVersion is part of goose's store.
func (h history) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	all, err := h.entries(ctx, db)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[0].version, nil
}

// ListMigrations is part of goose's store, which wants a version 0 at the end.
func (h history) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	all, err := h.entries(ctx, db)
	if err != nil {
		return nil, err
	}
	list := make([]*database.ListMigrationsResult, 0, len(all)+1)
	for _, e := range all {
		list = append(list, &database.ListMigrationsResult{Version: e.version, IsApplied: true})
	}
	return append(list, &database.ListMigrationsResult{IsApplied: true}), nil
}

// lockKey is the advisory lock of everything in a database that changes an outbox schema:
// "outboxcd" as a number.
const lockKey int64 = 0x6f7574626f786364

// locker makes deployers that arrive together take turns. Unlike goose's own it waits on the
// server, so the next one starts as soon as the one before it is done.
type locker struct {
	wait time.Duration // at most
}

// lockWait is how long the migrations of other deployers may take. Any role of the database can hold
// the lock.
const lockWait = time.Minute

var _ lock.SessionLocker = locker{}

// SessionLock waits for the lock until ctx is done or wait is over; the error is an
// [*advisory.HeldError] then.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	err := l.lock(ctx, conn)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "55P03" { // lock_not_available
		return err
	}
	held := &advisory.HeldError{What: fmt.Sprintf("migrate: waited for %s", l.wait), Err: err}
	query := advisory.Holders(strconv.FormatInt(lockKey, 10), advisory.OneKey)
	if err := conn.QueryRowContext(ctx, query).Scan(&held.Holders); err != nil {
		return fmt.Errorf("find out who holds the lock of the migrations: %w", err)
	}
	return held
}

// lock limits the wait in a transaction; the lock is the session's and outlives it.
func (l locker) lock(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, l.wait.Milliseconds()))
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, lockKey)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	return nil
}

// SessionUnlock releases the lock. A connection that was lost has released it already.
func (locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, lockKey)
	if err != nil && !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("release the lock: %w", err)
	}
	return nil
}
