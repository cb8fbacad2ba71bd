package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// ServerDetails are the settings and the load of a server that matter for slots.
type ServerDetails struct {
	MaxSlots, Slots     int // max_replication_slots, and the number of slots
	MaxSenders, Senders int // max_wal_senders, and the number of WAL senders

	WALBytes float64       // WAL that was written during WALTime
	WALTime  time.Duration // time since the reset of the server's statistics

	ClockAhead time.Duration // the server's clock minus ours; the error is at most half of ClockTrip
	ClockTrip  time.Duration // round-trip time of the query

	SyncStandbys string // synchronous_standby_names
}

// Server reads the settings and the load of the server.
func (r *Reader) Server(ctx context.Context) (*ServerDetails, error) {
	return read(ctx, r, func(conn executor) (*ServerDetails, error) {
		asked := time.Now()
		return queryOne(ctx, conn, func(row pgx.CollectableRow) (v ServerDetails, err error) {
			answered := time.Now()
			var seconds, clock float64
			err = row.Scan(&v.MaxSlots, &v.Slots, &v.MaxSenders, &v.Senders, &v.WALBytes, &seconds, &clock, &v.SyncStandbys)
			v.WALTime = time.Duration(seconds * float64(time.Second))
			v.ClockTrip = answered.Sub(asked)
			v.ClockAhead = time.UnixMicro(int64(clock * 1e6)).Sub(asked.Add(v.ClockTrip / 2))
			return v, err
		}, "read the server's limits", `
			SELECT pg_catalog.current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_catalog.pg_replication_slots),
				pg_catalog.current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_catalog.pg_stat_replication),
				w.wal_bytes::float8, COALESCE(extract(epoch FROM pg_catalog.clock_timestamp() - w.stats_reset), 0)::float8,
				extract(epoch FROM pg_catalog.clock_timestamp())::float8, pg_catalog.current_setting('synchronous_standby_names')
			FROM pg_catalog.pg_stat_wal w`)
	})
}

// RoleDetails are the privileges of the connection's role.
type RoleDetails struct {
	Name        string
	Superuser   bool
	Replication bool // the attribute REPLICATION, or membership in rds_replication
	Create      bool // CREATE on the database

	EmitsMessages bool     // EXECUTE on pg_logical_emit_message
	EmitText      string   // signature of the function that the relay calls, for GRANT
	OpenEmit      []string // signatures of pg_logical_emit_message that every role may execute
}

// GrantMessages returns the SQL that lets the role write logical messages, for a superuser.
func (r *RoleDetails) GrantMessages() string {
	return "GRANT EXECUTE ON FUNCTION " + r.EmitText + " TO " + replication.QuoteIdent(r.Name)
}

// Role reads the privileges of the role.
func (r *Reader) Role(ctx context.Context) (*RoleDetails, error) {
	return read(ctx, r, func(conn executor) (*RoleDetails, error) { return readRole(ctx, conn, "") })
}

// readRole reads the privileges of a role, or of the session's if name is empty. It returns nil if there is no such role.
func readRole(ctx context.Context, conn executor, name string) (*RoleDetails, error) {
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (r RoleDetails, err error) {
		return r, row.Scan(&r.Name, &r.Superuser, &r.Replication, &r.Create, &r.EmitsMessages, &r.EmitText, &r.OpenEmit)
	}, "read the role", `
		WITH emit AS (
			SELECT oid, proargtypes[2] = 'text'::regtype AS text,
				pg_catalog.format('pg_catalog.%I(%s)', proname, pg_catalog.oidvectortypes(proargtypes)) AS form
			FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = 'pg_logical_emit_message')
		SELECT r.rolname, r.rolsuper, r.rolsuper OR r.rolreplication OR EXISTS (
				SELECT FROM pg_catalog.pg_roles s WHERE s.rolname = 'rds_replication' AND pg_catalog.pg_has_role(r.oid, s.oid, 'member')),
			pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'CREATE'),
			(SELECT pg_catalog.bool_or(pg_catalog.has_function_privilege(r.oid, oid, 'EXECUTE')) FROM emit WHERE text),
			(SELECT pg_catalog.max(form) FROM emit WHERE text),
			ARRAY(SELECT form FROM emit WHERE pg_catalog.has_function_privilege('public', oid, 'EXECUTE') ORDER BY form)
		FROM pg_catalog.pg_roles r WHERE r.rolname = COALESCE(NULLIF($1, ''), session_user)`, name)
}

// HBAErrors returns the lines of pg_hba.conf that the server cannot parse. known is false if the role may
// not read them; by default only a superuser may.
func (r *Reader) HBAErrors(ctx context.Context) (lines []string, known bool, err error) {
	lines, err = read(ctx, r, func(conn executor) ([]string, error) {
		may, err := queryOne(ctx, conn, pgx.RowTo[bool], "read privileges", `
			SELECT pg_catalog.has_function_privilege('pg_catalog.pg_hba_file_rules()', 'EXECUTE')
				AND pg_catalog.has_table_privilege('pg_catalog.pg_hba_file_rules', 'SELECT')`)
		if err != nil || !*may {
			return nil, err
		}
		known = true
		return query(ctx, conn, pgx.RowTo[string], "read pg_hba.conf", `
			SELECT pg_catalog.format('line %s: %s', line_number, error) FROM pg_catalog.pg_hba_file_rules WHERE error IS NOT NULL ORDER BY line_number`)
	})
	return lines, known, err
}

// TableDetails describe an outbox table.
type TableDetails struct {
	Table // with the columns that the publication sends

	// Published is the published table that has rows of this table: the table itself, or a table of
	// which it is a partition, or, if all of its partitions are published, one of these. Nil: not all of
	// its rows are published, or it has no partition yet.
	Published *Table
	Missing   *Part // the first part whose rows are not published; nil: none, or there is no publication

	Select, Owner bool // the role may read the table, and owns it

	// Hidden says that row-level security of the table, or of a partition, hides rows from the role. Nil: it does not.
	Hidden *HiddenError

	// RefillAlter is the statement that gives it the columns without which a lost slot cannot be refilled,
	// empty if it has them.
	RefillAlter string

	// Unidentified are the table or its partitions without a replica identity. If the publication
	// publishes UPDATEs or DELETEs, Postgres rejects these statements for them.
	Unidentified []string
}

// SQLName returns the name with its schema, quoted for SQL.
func (t Table) SQLName() string {
	return sqlName(t.Schema, t.Name)
}

// Table reads a table. name is written as in [SetupConfig.Tables]. publication may be nil. The error wraps
// ErrConfig or ErrPublication if the table does not exist.
func (r *Reader) Table(ctx context.Context, name string, publication *Publication) (*TableDetails, error) {
	var missing error
	t, err := read(ctx, r, func(conn executor) (*TableDetails, error) {
		published := ""
		if publication != nil {
			published = publication.Name
		}
		o, err := findTable(ctx, conn, name, published, r.source.Database)
		if errors.Is(err, replication.ErrPublication) || errors.Is(err, replication.ErrConfig) {
			missing = err
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		t := &TableDetails{}
		if publication != nil {
			if t.Missing = publication.missing(o); t.Missing == nil {
				t.Published = publication.carrier(o.Parts[len(o.Parts)-1])
			}
		}
		if t.Table, err = readTable(ctx, conn, o, published); err != nil {
			return nil, err
		}
		carried := t.Table
		if t.Published != nil && !t.Partitioned {
			carried = *t.Published
		}
		if t.RefillAlter, err = refillAlter(ctx, conn, carried); err != nil { // unlike the other queries, it waits for a lock on the table
			return nil, ExplainLock(ctx, conn, err, published)
		}
		if t.Hidden, err = findHidden(ctx, conn, append(o.leaves(), t.OID)); err != nil {
			return nil, err
		}
		return t, t.readRights(ctx, conn)
	})
	return t, errors.Join(err, missing)
}

func (t *TableDetails) readRights(ctx context.Context, conn executor) error {
	type rights struct {
		may, owns    bool
		unidentified []string
	}
	// relreplident: 'd' primary key, 'i' index, which may have been dropped, 'n' nothing, 'f' full.
	r, err := queryOne(ctx, conn, func(row pgx.CollectableRow) (r rights, err error) {
		return r, row.Scan(&r.may, &r.owns, &r.unidentified)
	}, "read privileges and replica identity", `
		SELECT pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'), pg_catalog.pg_has_role(c.relowner, 'USAGE'), ARRAY(
			SELECT pg_catalog.format('%I.%I', n.nspname, l.relname)
			FROM pg_catalog.pg_class l JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
			WHERE (l.oid = c.oid AND c.relkind = 'r' OR l.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid) WHERE isleaf))
				AND l.relreplident <> 'f' AND NOT EXISTS (
				SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid
					AND (l.relreplident = 'd' AND i.indisprimary OR l.relreplident = 'i' AND i.indisreplident))
			ORDER BY n.nspname, l.relname)
		FROM pg_catalog.pg_class c WHERE c.oid = $1::oid`, oid(t.OID))
	if err != nil || r == nil { // dropped just now
		return err
	}
	t.Select, t.Owner, t.Unidentified = r.may, r.owns, r.unidentified
	return nil
}
