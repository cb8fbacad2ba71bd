package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A CopyFilter selects the rows of a Copy, and orders them by the column position, if it is a number: the order of insertion. A table without
// it is read in physical order, or with Where, by the first column of ID that it has. The zero CopyFilter selects all rows.
type CopyFilter struct {
	Where string   // SQL condition; it runs with the privileges of the role, in a read-only transaction
	ID    []string // names of the column that identifies a row
}

// verify returns an error that wraps ErrConfig if Where is not one condition on the table.
func (f CopyFilter) verify(ctx context.Context, conn *pgconn.PgConn, table string) error {
	if f.Where == "" {
		return nil
	}
	// To prepare is to parse: several statements are an error.
	if _, err := conn.Prepare(ctx, "", "SELECT FROM "+table+" WHERE "+f.condition(), nil); err != nil {
		if sqlState(err) == "" {
			return replication.QueryError(ctx, "verify source.initial_copy_where", err)
		}
		return fmt.Errorf("%w: source.initial_copy_where is not a condition on %s: %w", replication.ErrConfig, table, err)
	}
	return nil
}

// condition ends a comment in Where by a newline.
func (f CopyFilter) condition() string { return "(" + f.Where + "\n)" }

// order returns the clause for the order of the rows of t.
func (f CopyFilter) order(t Table) string {
	if c, ok := t.column(orderColumn); ok && slices.Contains([]uint32{pgtype.Int8OID, pgtype.Int4OID, pgtype.NumericOID}, c.TypeOID) {
		return orderBy(orderColumn)
	}
	if f.Where == "" {
		return ""
	}
	for _, name := range f.ID {
		if _, ok := t.column(name); ok {
			return orderBy(name)
		}
	}
	return ""
}

func orderBy(column string) string { return " ORDER BY " + replication.QuoteIdent(column) }

// column returns a column of the table, sent or not.
func (t Table) column(name string) (c Column, ok bool) {
	for _, c := range t.Columns {
		if c.Name == name {
			return c, true
		}
	}
	for _, c := range t.Unsent {
		if c.Name == name {
			return c.Column, true
		}
	}
	return Column{}, false
}
