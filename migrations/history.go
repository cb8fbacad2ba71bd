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

// historyTable records the applied migrations, in the schema of their tables.
const historyTable = "outbox_cdc_migrations"

// A history has the migrations that are applied to one outbox table or inbox. The first Insert creates its
// table and the last Delete drops it, each in the transaction of the migration. So reading creates
// nothing, and finds version 0 if there is no table.
//
// Only the holder of locker's lock writes.
type history struct {
	sql         string // quoted name of the history table
	table       string // the outbox table, or the claims of an inbox
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

// entries returns the applied migrations, newest first.
func (h history) entries(ctx context.Context, db database.DBTxConn) (_ []entry, err error) {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT pg_catalog.to_regclass($1) IS NOT NULL`, h.sql).Scan(&exists); err != nil || !exists {
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

// Tablename implements [database.Store].
func (h history) Tablename() string { return h.sql }

// TableExists implements [database.StoreExtender]. It returns true, so that goose does not create the table.
func (h history) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements [database.Store]. The schema must exist.
func (h history) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+h.sql+` (
		table_name  text        NOT NULL,
		version     bigint      NOT NULL,
		partitioned boolean     NOT NULL,
		applied_at  timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (table_name, version)
	);
	COMMENT ON TABLE `+h.sql+` IS 'Migrations of outbox-cdc that are applied to the outbox tables and the inbox (processed_events) of this schema.'`)
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

// GetMigration implements [database.Store].
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

// GetLatestVersion implements [database.StoreExtender].
func (h history) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	all, err := h.entries(ctx, db)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[0].version, nil
}

// ListMigrations implements [database.Store]. goose expects a version 0 at the end.
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

// lockKey is the advisory lock of the migrations in a database: "outboxcd" as a number.
const lockKey int64 = 0x6f7574626f786364

// A locker lets deployers run one after the other. Unlike goose's own it waits in the server, so the next
// one starts as soon as the previous one is done.
type locker struct {
	wait time.Duration // at most
}

// lockWait is how long Up waits for other deployers. It is limited, because any role of the database can
// hold the lock.
const lockWait = time.Minute

var _ lock.SessionLocker = locker{}

// SessionLock waits for the lock until ctx is done or l.wait is over. After l.wait the error is an
// [*advisory.HeldError].
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	err := l.lock(ctx, conn)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "55P03" { // lock_not_available
		return err
	}
	held := &advisory.HeldError{What: fmt.Sprintf("migrate: waited for %s", l.wait), Err: err}
	query := advisory.Holders(strconv.FormatInt(lockKey, 10), advisory.OneKey)
	if err := conn.QueryRowContext(ctx, query).Scan(&held.Holders); err != nil {
		return fmt.Errorf("find the session that holds the lock of the migrations: %w", err)
	}
	return held
}

// lock takes the session-level lock. It uses a transaction only to limit the wait.
func (l locker) lock(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err == nil {
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, l.wait.Milliseconds()))
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `SELECT pg_catalog.pg_advisory_lock($1)`, lockKey)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("wait for other migrations: %w", err)
	}
	return nil
}

// SessionUnlock releases the lock. If the connection is lost, the server has released it.
func (locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, lockKey)
	if err != nil && !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("release the lock: %w", err)
	}
	return nil
}
