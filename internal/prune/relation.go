package prune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A relation is an outbox table as the catalog describes it.
type relation struct {
	oid    uint32
	name   string    // in SQL, with its schema
	before time.Time // older rows are removed
	old    string    // SQL condition for old rows; $1 is before
	ends   string    // SQL for the end of a partition, whose upper bound is the text ends, if the age column is the partition key; otherwise empty

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

// describe looks up a table.
func (p *pruner) describe(ctx context.Context, name string) (*relation, error) {
	r := &relation{old: "$1::timestamptz IS NOT NULL"}
	var kind string
	err := p.work.QueryRow(ctx, `
		SELECT c.oid, format('%I.%I', n.nspname, c.relname), c.relkind::text, clock_timestamp() - make_interval(secs => $2),
			CASE WHEN to_regprocedure(format('%I.%I(integer)', n.nspname, c.relname || '_create_partitions')) IS NULL THEN ''
				ELSE format('%I.%I', n.nspname, c.relname || '_create_partitions') END
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = to_regclass($1)`, name, p.cfg.OlderThan.Seconds()).Scan(&r.oid, &r.name, &kind, &r.before, &r.create)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: the table does not exist", ErrConfig)
	case err != nil:
		return nil, fmt.Errorf("read the table's properties: %w", err)
	case kind != "r" && kind != "p":
		return nil, fmt.Errorf("%w: it is not a table", ErrConfig)
	}
	if err := p.readAge(ctx, r); err != nil {
		return nil, err
	}
	if err := p.readParts(ctx, r, kind == "p"); err != nil {
		return nil, err
	}
	if err := p.verifyRows(ctx, r); err != nil {
		return nil, err
	}
	rows, _ := p.work.Query(ctx, `
		SELECT DISTINCT quote_ident(p.pubname) AS name FROM pg_catalog.pg_publication p, pg_catalog.pg_get_publication_tables(p.pubname) t
		WHERE p.pubdelete AND (t.relid = $1 OR t.relid IN (SELECT relid FROM pg_catalog.pg_partition_tree($1))) ORDER BY name`, r.oid)
	if r.deletesVia, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, fmt.Errorf("read the publications: %w", err)
	}
	return r, nil
}

// readAge reads the properties of the age column.
func (p *pruner) readAge(ctx context.Context, r *relation) error {
	if p.cfg.OlderThan == 0 && p.cfg.AgeColumn == "" {
		return nil
	}
	var column, kind string
	var partitions bool
	err := p.work.QueryRow(ctx, `
		SELECT quote_ident(a.attname), format_type(a.atttypid, NULL),
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
	}
	return nil
}

const withZone = "timestamp with time zone"

// zones returns the time zones in which a value without one may have been written: UTC, that of the database and that of this
// session, as SQL literals.
func (p *pruner) zones(ctx context.Context) ([]string, error) {
	rows, _ := p.work.Query(ctx, `
		SELECT 'UTC' UNION SELECT current_setting('TimeZone') UNION (
			SELECT substr(setting, 10) FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS setting
			WHERE s.setrole = 0 AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
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

// readParts reads the partitions. Partitions by age are dropped when every row is old; rows are deleted only in the
// default partition.
func (p *pruner) readParts(ctx context.Context, r *relation, partitioned bool) (err error) {
	switch {
	case r.ends != "":
		// MATERIALIZED, because Postgres may otherwise cast the bounds of the partitions of other tables, too.
		r.partitions, err = p.parts(ctx, `
			WITH parts AS MATERIALIZED (
				SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, c.relname,
					(regexp_match(pg_get_expr(c.relpartbound, c.oid), ' TO \(''([^'']*)''\)$'))[1] AS ends
				FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE i.inhparent = $1 AND c.relkind IN ('r', 'p') AND NOT i.inhdetachpending)
			SELECT p.oid, p.name, s.bytes::bigint, pg_size_pretty(s.bytes)
			FROM parts p, LATERAL (SELECT COALESCE(sum(pg_total_relation_size(relid)), 0) AS bytes FROM pg_partition_tree(p.oid)) s -- no size: it has just been dropped
			WHERE `+r.ends+` <= $2 ORDER BY p.relname`, r.oid, r.before)
		if err == nil {
			r.leaves, err = p.leaves(ctx, `(SELECT partdefid FROM pg_partitioned_table WHERE partrelid = $1)`, r.oid)
		}
	case partitioned:
		r.leaves, err = p.leaves(ctx, `$1`, r.oid)
	default:
		r.leaves = []part{{r.oid, Partition{Name: r.name}}}
	}
	if err != nil {
		return fmt.Errorf("read its partitions: %w", err)
	}
	return nil
}

// leaves returns the leaf tables below root.
func (p *pruner) leaves(ctx context.Context, root string, oid uint32) ([]part, error) {
	return p.parts(ctx, `
		SELECT c.oid, format('%I.%I', n.nspname, c.relname), 0::bigint, ''
		FROM pg_partition_tree(`+root+`) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE t.isleaf AND c.relkind = 'r' ORDER BY c.relname`, oid)
}

func (p *pruner) parts(ctx context.Context, sql string, args ...any) ([]part, error) {
	rows, _ := p.work.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[part])
}
