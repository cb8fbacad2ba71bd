package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A tableRef is an existing table of SetupConfig.Tables.
type tableRef struct {
	oid          uint32
	schema, name string
	kind         string   // pg_class.relkind
	persistence  string   // pg_class.relpersistence
	ancestors    []uint32 // tables of which it is a partition, and the table itself
	leaves       []uint32 // leaf partitions of a partitioned table
}

// tables looks up the tables of the configuration.
func (s *setup) tables(ctx context.Context) ([]tableRef, error) {
	var tables []tableRef
	for _, name := range s.cfg.Tables {
		doing := fmt.Sprintf("look up table %q", name)
		found, err := lookUpTables(ctx, s.conn, doing, "c.oid = pg_catalog.to_regclass($1)", name)
		if code := sqlState(err); strings.HasPrefix(code, "42") && code != insufficientPrivilege { // name is not valid
			return nil, fmt.Errorf("%w: %w", replication.ErrConfig, err)
		}
		var t tableRef
		if len(found) > 0 {
			t = found[0]
		}
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0:
			return nil, fmt.Errorf("%w: table %q does not exist in database %q, or not in the role's search_path; create it with: outbox-cdc migrate up --dsn … --table %s",
				replication.ErrPublication, name, s.cfg.Conn.Database, name)
		case t.kind != "r" && t.kind != "p":
			return nil, fmt.Errorf("%w: %q is not a table", replication.ErrConfig, name)
		case t.persistence != "p":
			return nil, fmt.Errorf("%w: table %q is unlogged or temporary: its rows are not in the WAL", replication.ErrConfig, name)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// lookUpTables returns the relations for which an SQL condition about pg_class c and pg_namespace n, with the
// parameter $1, is true.
func lookUpTables(ctx context.Context, conn executor, doing, condition, param string) ([]tableRef, error) {
	return query(ctx, conn, func(row pgx.CollectableRow) (t tableRef, err error) {
		return t, row.Scan(&t.oid, &t.schema, &t.name, &t.kind, &t.persistence, &t.ancestors, &t.leaves)
	}, doing, `
		SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
			ARRAY(SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid)),
			ARRAY(SELECT relid::oid FROM pg_catalog.pg_partition_tree(c.oid) WHERE isleaf)
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE `+condition, param)
}

// Covers checks that a publication publishes every row that is inserted into the tables, which are written
// as in [SetupConfig.Tables]. A table may be published itself, through a table of which it is a partition,
// or through all of its partitions. The error wraps ErrPublication or ErrConfig and says how to fix it.
func Covers(ctx context.Context, conn *pgconn.Config, publication string, tables []string) error {
	c, err := replication.Connect(ctx, replication.Ordinary(conn))
	if err != nil {
		return err
	}
	s := &setup{cfg: SetupConfig{Conn: conn, Publication: publication, Tables: tables}, conn: c}
	defer s.close(ctx)
	server, err := readServer(ctx, c)
	if err != nil {
		return err
	}
	p, err := readPublication(ctx, c, server.ServerVersion, publication)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("%w: publication %q does not exist in database %q", replication.ErrPublication, publication, server.Database)
	}
	refs, err := s.tables(ctx)
	if err != nil {
		return err
	}
	return p.covers(refs)
}

// covers checks that p publishes every row that is inserted into the tables.
func (p *Publication) covers(tables []tableRef) error {
	for _, t := range tables {
		published := p.carrier(t)
		table := replication.QuoteIdent(t.schema) + "." + replication.QuoteIdent(t.name)
		switch {
		case published == nil:
			return fmt.Errorf("%w: publication %q does not include table %s; run ALTER PUBLICATION %s ADD TABLE %s, which delivers the rows of transactions that start after it",
				replication.ErrPublication, p.Name, table, replication.QuoteIdent(p.Name), table)
		case published.RowFilter != "":
			return fmt.Errorf("%w: publication %q has a row filter on %s.%s: rows that do not match it are not delivered; remove it, or choose another publication name for the relay",
				replication.ErrPublication, p.Name, replication.QuoteIdent(published.Schema), replication.QuoteIdent(published.Name))
		}
	}
	return nil
}

// member returns the first of the publication's tables that is one of oids.
func (p *Publication) member(oids ...uint32) *Table {
	i := slices.IndexFunc(p.Tables, func(t Table) bool { return slices.Contains(oids, t.OID) })
	if i < 0 {
		return nil
	}
	return &p.Tables[i]
}
