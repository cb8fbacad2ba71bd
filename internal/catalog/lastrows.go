package catalog

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// lastPages is how many pages at the end of a table are read for its last rows.
const lastPages = 16

// LastRows returns a table, with the columns that cfg.Publication sends, and up to n of its physically last rows in
// the text format of the stream. A row has the text of each of the table's Columns, nil for NULL. For a partitioned
// table, LastRows reads the last partitions that have rows. It reads only the end of the table, unless
// that is empty. The role needs SELECT on the table. The error wraps ErrConfig or ErrPublication if the
// table does not exist.
func LastRows(ctx context.Context, cfg replication.Config, table string, n int) (*Table, [][][]byte, error) {
	settings := replication.ReadOnly(replication.Reading(cfg.Conn))
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	c, err := connect(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	defer replication.Disconnect(ctx, c)
	o, err := findTable(ctx, c, table, cfg.Publication, cfg.Conn.Database)
	if err != nil {
		return nil, nil, err
	}
	t, err := readTable(ctx, c, o, cfg.Publication)
	if err != nil {
		return nil, nil, err
	}
	if err := printNames(ctx, c); err != nil {
		return nil, nil, err
	}
	if err := VerifyRows(ctx, c, o.leaves()...); err != nil {
		return nil, nil, err
	}
	var rows [][][]byte
	for _, leaf := range slices.Backward(o.leaves()) {
		for _, end := range []bool{true, false} { // from the end; if that is empty, from the start
			if len(rows) > 0 && !end {
				break
			}
			found, err := readRows(ctx, c, leaf, t.Columns, end, n-len(rows))
			if err != nil {
				return nil, nil, err
			}
			rows = append(found, rows...)
		}
		if len(rows) >= n {
			break
		}
	}
	return &t, rows, nil
}

// readRows returns up to n rows of a table that is not partitioned, in physical order: the last ones if
// end is set, otherwise the first ones.
func readRows(ctx context.Context, conn executor, table uint32, columns []Column, end bool, n int) ([][][]byte, error) {
	name, err := queryOne(ctx, conn, pgx.RowTo[string], "look up the table", `
		SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid`, oid(table))
	if err != nil || name == nil { // dropped just now
		return nil, err
	}
	sql := fmt.Sprintf("SELECT %s FROM ONLY %s LIMIT %d", columnList(columns), *name, n)
	if end {
		pages, err := queryOne(ctx, conn, pgx.RowTo[int64], "measure the table",
			"SELECT pg_catalog.pg_relation_size($1::oid) / pg_catalog.current_setting('block_size')::bigint", oid(table))
		if err != nil || pages == nil {
			return nil, err
		}
		from := strconv.FormatInt(max(*pages-lastPages, 0), 10)
		sql = fmt.Sprintf("SELECT %s FROM ONLY %s WHERE ctid >= '(%s,0)'::tid ORDER BY ctid DESC LIMIT %d", columnList(columns), *name, from, n)
	}
	rows, err := query(ctx, conn, func(row pgx.CollectableRow) (values [][]byte, err error) {
		for _, v := range row.RawValues() {
			values = append(values, slices.Clone(v)) // nil stays nil
		}
		return values, nil
	}, "read the last rows", sql)
	if end {
		slices.Reverse(rows)
	}
	return rows, err
}

// TableNamed returns the table with the given name, which is schema and name joined by a dot, without quotes,
// as in errors and dead letters, with the columns that cfg.Publication sends. TableNamed returns nil if there is
// no such table, and an error if there are two. The role does not need SELECT on the table.
func TableNamed(ctx context.Context, cfg replication.Config, name string) (*Table, error) {
	settings := replication.ReadOnly(replication.Reading(cfg.Conn))
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	c, err := connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	defer replication.Disconnect(ctx, c)
	names, err := query(ctx, c, pgx.RowTo[string], "look up the table", `
		SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname || '.' || c.relname = $1 AND c.relkind IN ('r', 'p')`, name)
	switch {
	case err != nil || len(names) == 0:
		return nil, err
	case len(names) > 1:
		return nil, fmt.Errorf("%w: two tables have the name %s", replication.ErrConfig, name)
	}
	o, err := findTable(ctx, c, names[0], cfg.Publication, cfg.Conn.Database)
	if err != nil {
		return nil, err
	}
	t, err := readTable(ctx, c, o, cfg.Publication)
	return &t, err
}
