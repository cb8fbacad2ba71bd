package replication

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// query returns the rows of a statement, each made by fn.
func query[T any](ctx context.Context, conn *pgconn.PgConn, fn pgx.RowToFunc[T], doing, sql string, args ...string) ([]T, error) {
	params := make([][]byte, len(args))
	for i, arg := range args {
		params[i] = []byte(arg)
	}
	rows := pgx.RowsFromResultReader(pgtype.NewMap(), conn.ExecParams(ctx, sql, params, nil, nil, nil))
	result, err := pgx.CollectRows(rows, fn)
	return result, wrap(ctx, doing, err, querying)
}

// queryOne returns the only row of a statement, nil if there is none.
func queryOne[T any](ctx context.Context, conn *pgconn.PgConn, fn pgx.RowToFunc[T], doing, sql string, args ...string) (*T, error) {
	rows, err := query(ctx, conn, fn, doing, sql, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func readServer(ctx context.Context, conn *pgconn.PgConn) (*Catalog, error) {
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (c Catalog, err error) {
		return c, row.Scan(&c.ServerVersion, &c.SystemID, &c.Database, &c.InRecovery, &c.WALLevel, &c.Encoding)
	}, "read the server's settings", `
		SELECT current_setting('server_version_num')::int, s.system_identifier::text, d.datname,
			pg_catalog.pg_is_in_recovery(), current_setting('wal_level'), pg_catalog.pg_encoding_to_char(d.encoding)
		FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d
		WHERE d.datname = current_database()`)
}

func readPublication(ctx context.Context, conn *pgconn.PgConn, name string) (*Publication, error) {
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (p Publication, err error) {
		return p, row.Scan(&p.Name, &p.Insert, &p.Update, &p.Delete, &p.Truncate, &p.ViaRoot, &p.AllTables)
	}, "read the publication", `
		SELECT pubname, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables
		FROM pg_catalog.pg_publication WHERE pubname = $1`, name)
}

// readTables returns the tables with the columns that their Relation messages will have:
// no dropped ones, no generated ones unless published (from Postgres 18 on), and only those
// of the column list (from 15 on).
func readTables(ctx context.Context, conn *pgconn.PgConn, version int, publication string) ([]Table, error) {
	// pg_publication_tables has attnames and rowfilter from 15 on.
	filtered, published := "pt.rowfilter IS NOT NULL", "a.attname = ANY (pt.attnames)"
	switch {
	case version < 150000:
		filtered, published = "false", "a.attgenerated = ''"
	case version < 180000:
		published += " AND a.attgenerated = ''"
	}
	type row struct {
		table  Table
		column Column
	}
	rows, err := query(ctx, conn, func(r pgx.CollectableRow) (v row, err error) {
		t, c := &v.table, &v.column
		return v, r.Scan(&t.OID, &t.Schema, &t.Name, &t.HasRowFilter, &c.Name, &c.TypeOID, &c.TypeName, &c.NotNull)
	}, "read the publication's tables", `
		SELECT c.oid, n.nspname, c.relname, `+filtered+`,
			a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull
		FROM pg_catalog.pg_publication_tables pt
		JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
		JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = pt.tablename
		JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE pt.pubname = $1 AND `+published+`
		ORDER BY n.nspname, c.relname, a.attnum`, publication)
	if err != nil {
		return nil, err
	}
	var tables []Table
	for _, r := range rows {
		if n := len(tables); n == 0 || tables[n-1].OID != r.table.OID {
			tables = append(tables, r.table)
		}
		t := &tables[len(tables)-1]
		t.Columns = append(t.Columns, r.column)
	}
	return tables, nil
}

func readSlot(ctx context.Context, conn *pgconn.PgConn, version int, name string) (*Slot, error) {
	later := "'', false" // columns of 17
	if version >= 170000 {
		later = "COALESCE(invalidation_reason, ''), synced"
	}
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (s Slot, err error) {
		return s, row.Scan(&s.Name, &s.Plugin, &s.Database, &s.Active, &s.ActivePID, &s.RestartLSN, &s.ConfirmedFlushLSN,
			&s.WALStatus, &s.Temporary, &s.TwoPhase, &s.InvalidationReason, &s.Synced)
	}, "read the slot", `
		SELECT slot_name, COALESCE(plugin, ''), COALESCE(database, ''), active, COALESCE(active_pid, 0),
			COALESCE(restart_lsn, '0/0'), COALESCE(confirmed_flush_lsn, '0/0'), COALESCE(wal_status, ''),
			temporary, two_phase, `+later+`
		FROM pg_catalog.pg_replication_slots WHERE slot_name = $1`, name)
}
