package encode

import (
	"fmt"
	"strconv"
	"strings"
)

// A RowError is a row that cannot become a record. It names the row by its id and never
// shows other values.
type RowError struct {
	table  string // schema.table
	ID     string // the row's id, empty if that is what is wrong
	column string // the column at fault; empty if it is the row as a whole
	reason string
}

// Error says what is wrong with the row.
func (e *RowError) Error() string {
	row := "row of " + e.table
	if e.ID != "" {
		row = fmt.Sprintf("row %s of %s", visible(e.ID), e.table)
	}
	if e.column == "" {
		return row + ": " + e.reason
	}
	return fmt.Sprintf("%s: column %s: %s", row, e.column, e.reason)
}

// longestID is how much of an id is shown. A uuid has 36 bytes.
const longestID = 100

// visible returns an id as it may stand in a line: whoever writes rows must not be able to
// write log lines.
func visible(id string) string {
	cut := ""
	if len(id) > longestID {
		id, cut = id[:longestID], "…"
	}
	if quoted := strconv.Quote(id); quoted != `"`+id+`"` {
		id = quoted
	}
	return id + cut
}

// A ColumnError is a table that lacks columns the configuration names, or has them with a
// type that cannot serve.
type ColumnError struct {
	table    string   // schema.table
	Problems []string // one per column, e.g. `no column "aggregateid" (outbox.columns.key)`
	have     []string // the columns the publication sends
}

// Error lists every problem and what the table has.
func (e *ColumnError) Error() string {
	return fmt.Sprintf("table %s: %s; it has: %s",
		e.table, strings.Join(e.Problems, "; "), strings.Join(e.have, ", "))
}
