package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A CopyFilter selects the rows of a Copy, and orders them by the column position, or else by the first column of ID that
// the table has. The zero CopyFilter selects all rows and does not order them.
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
	for _, name := range append([]string{orderColumn}, f.ID...) {
		if t.hasColumn(name) {
			return " ORDER BY " + replication.QuoteIdent(name)
		}
	}
	return ""
}

// hasColumn reports whether the table has a column, sent or not.
func (t Table) hasColumn(name string) bool {
	return slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name == name }) ||
		slices.ContainsFunc(t.Unsent, func(c UnsentColumn) bool { return c.Name == name })
}
