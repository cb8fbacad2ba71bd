package debezium

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Live has the tables of the connector's database, as far as an import needs them.
type Live struct {
	tables    []liveTable
	plaintext bool // the server has no TLS
	encrypted bool // it has, because the tables were read over TLS
}

// A liveTable is a table that a connector can capture.
type liveTable struct {
	name tableName
	root tableName // the table of which it is a partition, or the table itself
	leaf bool      // it has rows of its own

	columns []string
}

// Ask reads the tables of the database of a connection string, over a new connection. An empty dsn is the connector's own
// ([Source]). Then, if the server has no TLS and the connector allows that (sslmode=prefer), Ask connects without. It also
// returns what settings returns for the connection, also if that fails.
func Ask(ctx context.Context, in *Input, dsn string, settings func(dsn string) (*pgx.ConnConfig, error)) (*Live, *pgx.ConnConfig, error) {
	own := dsn == ""
	if own {
		dsn, _ = Source(in)
	}
	conn, err := settings(dsn)
	if err != nil {
		return nil, nil, err
	}
	live, err := readLive(ctx, conn)
	if err == nil || !own || !in.prefersTLS() || !strings.Contains(err.Error(), "server refused TLS connection") {
		return live, conn, err
	}
	if conn, err = settings(source(in, &Live{plaintext: true})); err != nil {
		return nil, nil, err
	}
	if live, err = readLive(ctx, conn); err == nil {
		live.plaintext = true
	}
	return live, conn, err
}

// readLive reads the tables of a database, over a new connection.
func readLive(ctx context.Context, conn *pgx.ConnConfig) (*Live, error) {
	c, err := pgx.ConnectConfig(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	l := &Live{encrypted: conn.TLSConfig != nil}
	rows, err := c.Query(ctx, `
		SELECT n.nspname, c.relname, rn.nspname, rc.relname, c.relkind = 'r',
			ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_catalog.pg_class rc ON rc.oid = COALESCE(pg_catalog.pg_partition_root(c.oid), c.oid)
		JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
		ORDER BY 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("ask the database for its tables: %w", err)
	}
	l.tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t liveTable, err error) {
		return t, row.Scan(&t.name.schema, &t.name.name, &t.root.schema, &t.root.name, &t.leaf, &t.columns)
	})
	if err != nil {
		return nil, fmt.Errorf("ask the database for its tables: %w", err)
	}
	return l, nil
}

// withColumns returns the tables that have all these columns, without the partitions of such a table.
func (l *Live) withColumns(columns []string) []tableName {
	var out []tableName
	for _, t := range l.tables {
		if t.has(columns) && !slices.Contains(out, t.root) {
			out = append(out, t.root)
		}
	}
	return out
}

// split returns which of the tables have all these columns, and which do not.
func (l *Live) split(tables []tableName, columns []string) (complete, lacking []tableName) {
	for _, t := range tables {
		if slices.ContainsFunc(l.tables, func(of liveTable) bool { return of.name == t && of.has(columns) }) {
			complete = append(complete, t)
		} else {
			lacking = append(lacking, t)
		}
	}
	return complete, lacking
}

// has reports whether the table has all these columns.
func (t *liveTable) has(columns []string) bool {
	return !slices.ContainsFunc(columns, func(c string) bool { return !slices.Contains(t.columns, c) })
}

// match returns the outbox tables that the lists of a connector select. If they select all partitions of a
// table, it returns that table instead. selected is false if there are no lists.
func (l *Live) match(value func(string) string) (tables []tableName, selected bool) {
	lists := func(key string) []string { return splitExpressions(value(key)) }
	if value("table.include.list")+value("schema.include.list")+value("table.exclude.list")+value("schema.exclude.list") == "" {
		return nil, false
	}
	covered := func(expressions []string, name string) bool {
		return slices.ContainsFunc(expressions, func(x string) bool { return matches(x, name) })
	}
	schemas, names := lists("schema.include.list"), lists("table.include.list")
	notSchemas, notNames := lists("schema.exclude.list"), lists("table.exclude.list")
	var chosen []liveTable
	partial := make(map[tableName]bool) // roots with a partition that is not selected
	for _, t := range l.tables {
		switch {
		case len(schemas) > 0 && !covered(schemas, t.name.schema), covered(notSchemas, t.name.schema),
			len(names) > 0 && !covered(names, t.name.String()), covered(notNames, t.name.String()):
			partial[t.root] = partial[t.root] || t.leaf
		default:
			chosen = append(chosen, t)
		}
	}
	for _, t := range chosen {
		whole := t.root
		if partial[t.root] && !slices.ContainsFunc(chosen, func(c liveTable) bool { return c.name == t.root }) {
			whole = t.name
		}
		if !slices.Contains(tables, whole) {
			tables = append(tables, whole)
		}
	}
	return tables, true
}

// prefersTLS reports whether the connector also connects without TLS.
func (in *Input) prefersTLS() bool {
	e, ok := in.find("database.sslmode")
	return !ok || slices.Contains([]string{"prefer", "allow"}, strings.ToLower(e.value))
}

// Source returns the connection string of the connector's database. known is false if it contains references
// to a config provider.
func Source(in *Input) (dsn string, known bool) {
	dsn = source(in, nil)
	e, _ := in.find("database.hostname")
	return dsn, e.value != "" && !strings.Contains(dsn, "${")
}

// source returns the connection string of the connector's database. live says whether it has TLS; nil: unknown.
func source(in *Input, live *Live) string {
	m := &mapping{in: in, opts: Options{Live: live}, entries: make(map[string]entry), dsn: make(map[string]string)}
	for _, e := range in.entries {
		m.entries[e.key] = e
	}
	for _, r := range connectionRules() {
		if r.ours != "source.dsn" {
			continue
		}
		if e, ok := m.entries[r.key]; ok {
			_, _ = r.apply(m, e)
		} else if r.absent != nil {
			_, _ = r.absent(m)
		}
	}
	return m.conninfo()
}
