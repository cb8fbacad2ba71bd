package catalog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An executor runs one statement: a connection, or a preparer.
type executor interface {
	TxStatus() byte
	ExecParams(ctx context.Context, sql string, values [][]byte, oids []uint32, valueFormats, resultFormats []int16) *pgconn.ResultReader
}

// query runs a statement and returns its rows, each converted by fn. doing is the purpose of the statement,
// for errors.
func query[T any](ctx context.Context, conn executor, fn pgx.RowToFunc[T], doing, sql string, args ...string) ([]T, error) {
	params := make([][]byte, len(args))
	for i, arg := range args {
		params[i] = []byte(arg)
	}
	rows := pgx.RowsFromResultReader(pgtype.NewMap(), conn.ExecParams(ctx, sql, params, nil, nil, nil))
	result, err := pgx.CollectRows(rows, fn)
	return result, replication.QueryError(ctx, doing, err)
}

// queryOne is query for a statement with at most one row. It returns nil if there is no row.
func queryOne[T any](ctx context.Context, conn executor, fn pgx.RowToFunc[T], doing, sql string, args ...string) (*T, error) {
	rows, err := query(ctx, conn, fn, doing, sql, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// execute runs statements whose rows do not matter.
func execute(ctx context.Context, conn *pgconn.PgConn, doing, sql string) error {
	_, err := conn.Exec(ctx, sql).ReadAll()
	return replication.QueryError(ctx, doing, err)
}

// ping returns an error if the server does not respond over conn before ctx ends, which closes conn.
func ping(ctx context.Context, conn *pgconn.PgConn) error {
	return execute(ctx, conn, "check the connection", "SELECT")
}

// connect opens a connection that waits for locks of other transactions for [patience], for a reader of the catalog.
func connect(ctx context.Context, settings *pgconn.Config) (*pgconn.PgConn, error) {
	settings = settings.Copy()
	settings.RuntimeParams[lockTimeout] = millis(patience(ctx))
	return replication.Connect(ctx, settings)
}

// printNames makes the rest of a session print names in values as the stream does.
func printNames(ctx context.Context, conn *pgconn.PgConn) error {
	return execute(ctx, conn, "set the search_path", "SET search_path = "+replication.OutputPath)
}

// readVersion returns the server's version as in [State.ServerVersion].
func readVersion(ctx context.Context, conn executor) (int, error) {
	version, err := queryOne(ctx, conn, pgx.RowTo[int], "read the server's version", "SELECT pg_catalog.current_setting('server_version_num')::int")
	if err != nil {
		return 0, err
	}
	return *version, nil
}

func readServer(ctx context.Context, conn executor) (*State, error) {
	readAt := time.Now()
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (c State, err error) {
		c.ReadAt = readAt
		var idle int64
		err = row.Scan(&c.ServerVersion, &c.SystemID, &c.Database, &c.InRecovery, &c.WALLevel, &c.EffectiveWAL, &c.Encoding,
			&c.WALEnd, &c.MaxSlotWALKeepSize, &idle, &c.StandbySlots)
		c.IdleSlotTimeout = time.Duration(idle) * time.Second
		return c, err
	}, "read the server's settings", `
		SELECT pg_catalog.current_setting('server_version_num')::int, s.system_identifier::text, d.datname,
			pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('wal_level'), COALESCE(pg_catalog.current_setting('effective_wal_level', true), ''), pg_catalog.pg_encoding_to_char(d.encoding),
			CASE WHEN pg_catalog.pg_is_in_recovery() THEN COALESCE(pg_catalog.pg_last_wal_replay_lsn(), '0/0')
				ELSE pg_catalog.pg_current_wal_lsn() END,
			COALESCE(pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size', true)), -1),
			COALESCE(extract(epoch FROM pg_catalog.current_setting('idle_replication_slot_timeout', true)::interval), 0)::bigint,
			COALESCE((SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', n.name, 'active', EXISTS (
					SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = n.name AND slot_type = 'physical' AND active)))
				FROM pg_catalog.unnest(pg_catalog.string_to_array(pg_catalog.current_setting('synchronized_standby_slots', true), ',')) AS listed,
					pg_catalog.btrim(listed, ' "') AS n (name)
				WHERE n.name <> ''), '[]')
		FROM pg_catalog.pg_control_system() s, pg_catalog.pg_database d
		WHERE d.datname = pg_catalog.current_database()`)
}

// readPublication returns the publication with its tables, or nil if there is none. It re-reads the
// definition until it has not changed while the tables were read. One statement or snapshot would not be
// enough, because the functions of pg_publication_tables do not use the snapshot.
func readPublication(ctx context.Context, conn executor, version int, name string) (*Publication, error) {
	p, err := readDefinition(ctx, conn, version, name)
	for err == nil && p != nil {
		tables, tablesErr := readTables(ctx, conn, version, name, nil) // also fails if the publication was just dropped
		now, err := readDefinition(ctx, conn, version, name)
		switch {
		case err != nil:
			return nil, err
		case now != nil && now.oid == p.oid && now.version == p.version && slices.Equal(now.members, p.members) && slices.Equal(now.excepted, p.excepted) && maps.Equal(now.schemas, p.schemas):
			p.Tables = tables
			return p, tablesErr
		}
		p = now
	}
	return p, err
}

// readDefinition returns the publication without its tables.
func readDefinition(ctx context.Context, conn executor, version int, name string) (*Publication, error) {
	schemas := "'{}'::jsonb"
	if version >= 150000 {
		schemas = `COALESCE((SELECT pg_catalog.jsonb_object_agg(n.nspname, s.oid::bigint) FROM pg_catalog.pg_publication_namespace s
			JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid), '{}')`
	}
	p, err := queryOne(ctx, conn, func(row pgx.CollectableRow) (p Publication, err error) {
		return p, row.Scan(&p.oid, &p.version, &p.owner, &p.Name, &p.Insert, &p.Update, &p.Delete, &p.Truncate, &p.ViaRoot, &p.AllTables, &p.schemas)
	}, "read the publication", `
		SELECT oid, xmin::text::bigint, pubowner, pubname, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables, `+schemas+`
		FROM pg_catalog.pg_publication p WHERE pubname = $1`, name)
	if err == nil && p != nil {
		var all []member
		all, err = readMembers(ctx, conn, version, name)
		for _, m := range all {
			if m.excepted {
				p.excepted = append(p.excepted, m)
			} else {
				p.members = append(p.members, m)
			}
		}
	}
	return p, err
}

// readMembers returns the tables that were added to a publication. Postgres writes the pg_attribute rows of a table's system columns once,
// when it creates the table. An xmin up to 2 is that of no transaction.
func readMembers(ctx context.Context, conn executor, version int, publication string) ([]member, error) {
	excepted, columns := "false", "''"
	if version >= 150000 {
		columns = "COALESCE(r.prattrs::text, '')"
	}
	if version >= 190000 {
		excepted = "r.prexcept"
	}
	return query(ctx, conn, func(row pgx.CollectableRow) (m member, err error) {
		return m, row.Scan(&m.oid, &m.table, &m.schema, &m.name, &m.excepted, &m.columns, &m.born)
	}, "read the publication's members", `
		SELECT r.oid, c.oid, n.nspname, c.relname, `+excepted+`, `+columns+`, r.xmin::text::bigint > 2 AND EXISTS (
			SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = -1 AND a.xmin = r.xmin)
		FROM pg_catalog.pg_publication p
		JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
		JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE p.pubname = $1 ORDER BY n.nspname, c.relname`, publication)
}

// readTables returns the published tables with the columns of their Relation messages, and the columns that
// these messages lack. If only is not nil, it returns those of these OIDs. Postgres expects 1000 tables of a publication:
// MATERIALIZED and OFFSET 0 keep it from reading, and sorting, the columns of the whole database.
func readTables(ctx context.Context, conn executor, version int, publication string, only []string) ([]Table, error) {
	filter, listed := "COALESCE(pt.rowfilter, '')", "a.attname = ANY (pt.attnames)"
	if version < 150000 { // pg_publication_tables has no attnames and no rowfilter
		filter, listed = "''", "true"
	}
	wanted := ""
	if only != nil {
		wanted = "{" + strings.Join(only, ",") + "}"
	}
	type row struct {
		table Table
		scannedColumn
	}
	rows, err := query(ctx, conn, func(r pgx.CollectableRow) (v row, err error) {
		t := &v.table
		return v, r.Scan(append([]any{&t.OID, &t.Schema, &t.Name, &t.partition, &t.root, &t.Partitioned, &t.RowFilter}, v.fields()...)...)
	}, "read the publication's tables", `
		WITH published AS MATERIALIZED (SELECT * FROM pg_catalog.pg_publication_tables WHERE pubname = $1),
		pt AS MATERIALIZED (
			SELECT published.*, c.oid, c.relispartition, COALESCE(`+selectRoot+`, '') AS root, c.relkind
			FROM published
			JOIN pg_catalog.pg_namespace n ON n.nspname = published.schemaname
			JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = published.tablename
			WHERE $2 = '' OR c.oid = ANY (NULLIF($2, '')::oid[]))
		SELECT pt.oid, pt.schemaname, pt.tablename, pt.relispartition, pt.root, pt.relkind = 'p', `+filter+`, `+columnFields+`, `+listed+`
		FROM pt
		CROSS JOIN LATERAL (SELECT * FROM pg_catalog.pg_attribute WHERE attrelid = pt.oid AND attnum > 0 AND NOT attisdropped OFFSET 0) a
		ORDER BY pt.schemaname, pt.tablename, a.attnum`, publication, wanted)
	if err != nil {
		return nil, ExplainLock(ctx, conn, err, publication)
	}
	var tables []Table
	for _, r := range rows {
		if n := len(tables); n == 0 || tables[n-1].OID != r.table.OID {
			if r.table.RowFilter != "" {
				r.table.Republish = republish(publication, r.table.SQLName())
			}
			tables = append(tables, r.table)
		}
		addColumn(&tables[len(tables)-1], r.scannedColumn, version, publication)
	}
	return tables, nil
}

// selectRoot selects the topmost table of which the table c is a partition, as [sqlName] writes it.
const selectRoot = `
			(SELECT pg_catalog.format('"%s"."%s"', pg_catalog.replace(rn.nspname, '"', '""'), pg_catalog.replace(r.relname, '"', '""'))
				FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
				WHERE c.relispartition AND r.oid = pg_catalog.pg_partition_root(c.oid))`

func readSlot(ctx context.Context, conn executor, version int, name string) (*Slot, error) {
	later := "'', 0, false, false" // columns that Postgres has from 17 on
	if version >= 170000 {
		later = "COALESCE(invalidation_reason, ''), COALESCE(extract(epoch FROM inactive_since), 0)::bigint, failover, synced AND pg_catalog.pg_is_in_recovery()" // it stays true after a promotion
	}
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (s Slot, err error) {
		var inactiveSince int64
		err = row.Scan(&s.Name, &s.Plugin, &s.Database, &s.Active, &s.ActivePID, &s.RestartLSN, &s.ConfirmedFlushLSN,
			&s.WALStatus, &s.SafeWALSize, &s.Temporary, &s.TwoPhase, &s.InvalidationReason, &inactiveSince, &s.Failover, &s.Synced,
			&s.SyncSkipReason, &s.Decoding.SpilledTransactions, &s.Decoding.SpilledBytes, &s.Decoding.StreamedTransactions, &s.Decoding.StreamedBytes,
			&s.Client.Application, &s.Client.Address)
		if inactiveSince != 0 {
			s.InactiveSince = time.Unix(inactiveSince, 0)
		}
		return s, err
	}, "read the slot", `
		SELECT s.slot_name, COALESCE(plugin, ''), COALESCE(database, ''), active, COALESCE(active_pid, 0),
			COALESCE(restart_lsn, '0/0'), COALESCE(confirmed_flush_lsn, '0/0'), COALESCE(wal_status, ''), safe_wal_size,
			temporary, two_phase, `+later+`, COALESCE(pg_catalog.to_jsonb(s) ->> 'slotsync_skip_reason', ''),
			COALESCE(spill_txns, 0), COALESCE(spill_bytes, 0), COALESCE(stream_txns, 0), COALESCE(stream_bytes, 0),
			COALESCE(a.application_name, ''), COALESCE(pg_catalog.host(a.client_addr), '')
		FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_replication_slots d ON d.slot_name = s.slot_name
			LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
		WHERE s.slot_name = $1`, name)
}
