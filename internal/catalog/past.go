package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Past says what a table may have been when rows were written that a slot has not confirmed.
type Past struct {
	// Change identifies what may have made the table a part of another table, or ended that: ATTACH PARTITION, DETACH
	// PARTITION, INHERIT or NO INHERIT, or the renaming of a table whose part it is. Empty: nothing of that happened after
	// the confirmed position, so the table has been all the time what it is now. It is the same text until the next change.
	Change string

	// Alone says that the table exists and has been what it is now, under its own name: there is no Change, and it was not
	// renamed after the confirmed position.
	Alone bool

	// Until is a position after every change that the catalog shows.
	Until pglogrepl.LSN
}

// ReadPast reads the Past of a table over a new connection.
//
// The catalog has the present only, but each of its rows has the id of the transaction that wrote it. To attach or detach a
// table, Postgres writes the pg_attribute rows of all its columns, and to rename a table, its pg_type row. Transactions before
// the slot's catalog_xmin had ended at the confirmed position. Rows that are as old as the table's system columns, which
// nothing changes, were not written again.
func ReadPast(ctx context.Context, conn *pgconn.Config, slot string, table uint32) (Past, error) {
	c, err := replication.Connect(ctx, readOnly(conn, "watch"))
	if err != nil {
		return Past{}, err
	}
	defer func() { _ = c.Close(ctx) }()
	past, err := queryOne(ctx, c, func(row pgx.CollectableRow) (p Past, err error) {
		return p, row.Scan(&p.Change, &p.Alone, &p.Until)
	}, fmt.Sprintf("read when table %d was attached or detached", table), `
		WITH RECURSIVE whole (oid) AS (
			SELECT $1::oid UNION SELECT i.inhparent FROM whole JOIN pg_catalog.pg_inherits i ON i.inhrelid = whole.oid),
		mark AS (SELECT (SELECT catalog_xmin FROM pg_catalog.pg_replication_slots WHERE slot_name = $2) AS xmin),
		born AS (SELECT attrelid AS oid, xmin FROM pg_catalog.pg_attribute WHERE attnum = -1 AND attrelid IN (SELECT oid FROM whole)),
		written AS (
			SELECT a.xmin, a.xmin = born.xmin OR pg_catalog.age(a.xmin) > pg_catalog.age(mark.xmin) AS before
			FROM mark, born JOIN pg_catalog.pg_attribute a ON a.attrelid = born.oid
			WHERE born.oid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped),
		named AS (
			SELECT t.xmin, born.oid, t.xmin = born.xmin OR pg_catalog.age(t.xmin) > pg_catalog.age(mark.xmin) AS before
			FROM mark, born JOIN pg_catalog.pg_type t ON t.typrelid = born.oid),
		past AS (SELECT COALESCE(pg_catalog.concat_ws(' ',
				(SELECT 'attached ' || pg_catalog.max(xmin::text) FROM written HAVING pg_catalog.bool_and(before IS NOT TRUE)),
				(SELECT 'renamed ' || pg_catalog.string_agg(xmin::text, ' ' ORDER BY xmin::text) FROM named WHERE before IS NOT TRUE AND named.oid <> $1::oid)), '') AS change)
		SELECT change, change = '' AND EXISTS (SELECT FROM named WHERE before AND named.oid = $1::oid),
			CASE WHEN pg_catalog.pg_is_in_recovery() THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
				ELSE pg_catalog.pg_current_wal_insert_lsn() END FROM past`, oid(table), slot)
	if err != nil {
		return Past{}, err
	}
	return *past, nil
}
