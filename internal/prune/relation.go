package prune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A relation is an outbox table as the catalog describes it.
type relation struct {
	oid    uint32
	name   string    // in SQL, with its schema
	before time.Time // older rows are removed
	old    string    // SQL condition for old rows; $1 is before
	ends   string    // SQL for the end of a partition, whose upper bound is the text ends, if the age column is the partition key; otherwise empty
	clock  string    // SQL for the current time in the age column: without time zone, the latest one
	span   string    // SQL name of the type of ranges of clock

	create     string   // function that creates partitions, in SQL; empty: none
	partitions []part   // old enough to drop
	leaves     []part   // tables whose rows are deleted
	deletesVia []string // publications that publish DELETEs of the table
}

// A part is a table that has rows.
type part struct {
	OID uint32
	Partition
}

// describe looks up a table as the relay does.
func (p *pruner) describe(ctx context.Context, name string) (*relation, error) {
	o, err := catalog.FindOutbox(ctx, p.work.PgConn(), name, p.cfg.Publication)
	switch {
	case errors.Is(err, replication.ErrConfig): // of the name
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	case err != nil:
		return nil, err
	case len(o.Parts) == 0:
		return nil, fmt.Errorf("%w: the table does not exist in database %q, or not in the role's search_path", ErrConfig, p.work.Config().Database)
	}
	table := o.Parts[0]
	if table.Kind != "r" && table.Kind != "p" {
		return nil, fmt.Errorf("%w: it is not a table", ErrConfig)
	}
	r := &relation{oid: table.OID, old: "$1::timestamptz IS NOT NULL"}
	err = p.work.QueryRow(ctx, `
		SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $2),
			COALESCE((SELECT pg_catalog.format('%I.%I', n.nspname, f.proname) FROM pg_catalog.pg_proc f
				WHERE f.pronamespace = n.oid AND f.proname = (c.relname || '_create_partitions')::name
					AND f.proargtypes = '23'::pg_catalog.oidvector AND f.prokind = 'f'), '')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = $1`, r.oid, p.cfg.OlderThan.Seconds()).Scan(&r.name, &r.before, &r.create)
	if err != nil {
		return nil, fmt.Errorf("read the table's properties: %w", err)
	}
	if err := p.readAge(ctx, r); err != nil {
		return nil, err
	}
	if err := p.readParts(ctx, r); err != nil {
		return nil, err
	}
	if err := p.verifyRows(ctx, r); err != nil {
		return nil, err
	}
	rows, _ := p.work.Query(ctx, `WITH RECURSIVE `+partsOf+`
		SELECT DISTINCT pg_catalog.quote_ident(p.pubname) AS name FROM pg_catalog.pg_publication p, pg_catalog.pg_get_publication_tables(p.pubname) t
		WHERE p.pubdelete AND t.relid IN (SELECT oid FROM part) ORDER BY name`, r.oid)
	if r.deletesVia, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, fmt.Errorf("read the publications: %w", err)
	}
	return r, nil
}

// partsOf is the table part of a query WITH RECURSIVE: the OIDs of table $1, its partitions and its children by inheritance.
const partsOf = `part(oid) AS (SELECT $1::oid UNION SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid)`

// readAge reads the properties of the age column.
func (p *pruner) readAge(ctx context.Context, r *relation) error {
	if p.cfg.OlderThan == 0 && p.cfg.AgeColumn == "" {
		return nil
	}
	var column, kind string
	var partitions bool
	err := p.work.QueryRow(ctx, `
		SELECT pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, NULL),
			COALESCE(pt.partstrat = 'r' AND pt.partnatts = 1 AND pt.partattrs[0] = a.attnum, false)
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_partitioned_table pt ON pt.partrelid = a.attrelid
		WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped`, r.oid, p.cfg.AgeColumn).Scan(&column, &kind, &partitions)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && p.cfg.OlderThan == 0:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: it has no column %q for the age of rows: name one with --age-column, or delete every delivered row with --older-than 0s",
			ErrConfig, p.cfg.AgeColumn)
	case err != nil:
		return fmt.Errorf("read its columns: %w", err)
	}
	switch kind {
	case withZone, "timestamp without time zone", "date":
	default:
		return fmt.Errorf("%w: column %q has type %s, not a timestamp or date", ErrConfig, p.cfg.AgeColumn, kind)
	}
	var zones []string
	if kind != withZone {
		if zones, err = p.zones(ctx); err != nil {
			return err
		}
	}
	switch {
	case p.cfg.OlderThan == 0:
	case kind == "date": // the row may be of the end of the day
		r.old = instant(zones, "("+column+" + 1)") + " <= $1"
	default:
		r.old = instant(zones, column) + " < $1"
	}
	if partitions {
		r.ends = instant(zones, "ends::"+kind)
		r.clock, r.span = clock(zones)
	}
	return nil
}

const withZone = "timestamp with time zone"

// zones returns the time zones in which a value without one may have been written: UTC, that of the database and that of this
// session, as SQL literals.
func (p *pruner) zones(ctx context.Context) ([]string, error) {
	rows, _ := p.work.Query(ctx, `
		SELECT 'UTC' UNION SELECT pg_catalog.current_setting('TimeZone') UNION (
			SELECT pg_catalog.substr(setting, 10) FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS setting
			WHERE s.setrole = 0 AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
				AND setting ILIKE 'timezone=%' ORDER BY s.setdatabase DESC LIMIT 1)`)
	zones, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the time zones: %w", err)
	}
	for i, zone := range zones {
		zones[i] = replication.QuoteLiteral(zone)
	}
	return zones, nil
}

// instant returns the SQL for the latest point in time that value can mean. A value without time zone is a time of one of the
// zones; of an hour that a zone has twice, Postgres takes the second.
func instant(zones []string, value string) string {
	if zones == nil {
		return value
	}
	var times []string
	for _, zone := range zones {
		times = append(times, fmt.Sprintf("%s::timestamp AT TIME ZONE %s", value, zone))
	}
	return "GREATEST(" + strings.Join(times, ", ") + ")"
}

// clock returns the SQL for the current time, and the name of the type of its ranges. Without time zone, unless zones is nil, it is
// the latest one on the clocks of the zones.
func clock(zones []string) (now, span string) {
	now = "pg_catalog.clock_timestamp()"
	if zones == nil {
		return now, "pg_catalog.tstzrange"
	}
	var times []string
	for _, zone := range zones {
		times = append(times, now+" AT TIME ZONE "+zone)
	}
	return "GREATEST(" + strings.Join(times, ", ") + ")", "pg_catalog.tsrange"
}

// readParts reads the partitions and the children by inheritance. Partitions by age are dropped when every row is old; then
// rows are deleted only in the default partition.
func (p *pruner) readParts(ctx context.Context, r *relation) (err error) {
	switch {
	case r.ends != "":
		r.partitions, err = p.parts(ctx, partsByAge+`
			SELECT p.oid, p.name, s.bytes::bigint, pg_catalog.pg_size_pretty(s.bytes)
			FROM parts p, LATERAL (SELECT COALESCE(sum(pg_catalog.pg_total_relation_size(relid)), 0) AS bytes FROM pg_catalog.pg_partition_tree(p.oid)) s -- no size: it has just been dropped
			WHERE `+r.ends+` <= $2 ORDER BY p.relname`, r.oid, r.before)
		if err == nil {
			r.leaves, err = p.leaves(ctx, `(SELECT partdefid FROM pg_catalog.pg_partitioned_table WHERE partrelid = $1)`, r.oid)
		}
	default:
		r.leaves, err = p.leaves(ctx, `$1`, r.oid)
	}
	if err != nil {
		return fmt.Errorf("read its partitions: %w", err)
	}
	return nil
}

// partsByAge is the table parts of a query: the partitions of table $1 with the texts of their bounds, NULL for MINVALUE and MAXVALUE and of
// the default partition. It is MATERIALIZED, because Postgres may otherwise cast the bounds of the partitions of other tables, too.
const partsByAge = `
			WITH parts AS MATERIALIZED (
				SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, c.relname,
					(pg_catalog.regexp_match(pg_catalog.pg_get_expr(c.relpartbound, c.oid), ' FROM \(''([^'']*)''\) TO '))[1] AS begins,
					(pg_catalog.regexp_match(pg_catalog.pg_get_expr(c.relpartbound, c.oid), ' TO \(''([^'']*)''\)$'))[1] AS ends
				FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE i.inhparent = $1 AND c.relkind IN ('r', 'p') AND NOT i.inhdetachpending)`

// leaves returns the tables that have the rows of root, its partitions and its children by inheritance.
func (p *pruner) leaves(ctx context.Context, root string, oid uint32) ([]part, error) {
	return p.parts(ctx, `WITH RECURSIVE `+strings.Replace(partsOf, "$1", root, 1)+`
		SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname), 0::bigint, ''
		FROM part JOIN pg_catalog.pg_class c ON c.oid = part.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' ORDER BY c.relname`, oid)
}

func (p *pruner) parts(ctx context.Context, sql string, args ...any) ([]part, error) {
	rows, _ := p.work.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[part])
}
