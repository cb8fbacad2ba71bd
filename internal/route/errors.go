package route

import (
	"fmt"
	"strings"
)

// A RowError is a row that cannot become a record. It names the row by its id and never
// shows other values.
type RowError struct {
	Table  string // schema.table
	ID     string // the row's id, empty if that is what is wrong
	Column string // the column at fault
	Reason string
}

// Error says what is wrong with the row.
func (e *RowError) Error() string {
	row := "row of " + e.Table
	if e.ID != "" {
		row = fmt.Sprintf("row %s of %s", e.ID, e.Table)
	}
	return fmt.Sprintf("%s: column %s: %s", row, e.Column, e.Reason)
}

// A ColumnError is a table that lacks columns the configuration names, or has them with a
// type that cannot serve.
type ColumnError struct {
	Table    string   // schema.table
	Problems []string // one per column, e.g. `no column "aggregateid" (outbox.columns.key)`
	Have     []string // the columns the publication sends
}

// Error lists every problem and what the table has.
func (e *ColumnError) Error() string {
	return fmt.Sprintf("table %s: %s; it has: %s",
		e.Table, strings.Join(e.Problems, "; "), strings.Join(e.Have, ", "))
}
