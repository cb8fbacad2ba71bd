package encode

import (
	"fmt"
	"strconv"
	"strings"
)

// A RowError says that a row cannot become a record. It has the id of the row, but no other values.
type RowError struct {
	table  string // schema.table
	ID     string // id of the row; empty if the id itself is invalid
	column string // the invalid column; empty if the error is about the whole row
	reason string
}

// Error names the table, the row, the column and the reason.
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

// longestID is how many bytes of an id an error shows. A uuid has 36.
const longestID = 100

// visible returns an id for a log line. It escapes control characters, so that nobody can forge log lines by
// writing rows.
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

// A ColumnError says that a table lacks columns of the configuration, or has them with the wrong type.
type ColumnError struct {
	Table    string   // schema.table
	Problems []string // one per column, such as `no column "aggregateid" (outbox.columns.key)`
	Have     []string // published columns of the table
}

// Explain adds a reason to the problem that the table has no column with this name. It reports whether that is a problem.
func (e *ColumnError) Explain(column, reason string) (explained bool) {
	for i, problem := range e.Problems {
		if missing, _, ok := strings.Cut(problem, "("); ok && strings.HasPrefix(missing, "no column ") && strings.Contains(missing, strconv.Quote(column)) {
			e.Problems[i], explained = strings.TrimSuffix(problem, ": "+reason)+": "+reason, true
		}
	}
	return explained
}

// Error lists every problem and the columns of the table.
func (e *ColumnError) Error() string {
	return fmt.Sprintf("table %s: %s; it has: %s",
		e.Table, strings.Join(e.Problems, "; "), strings.Join(e.Have, ", "))
}
