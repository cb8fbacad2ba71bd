package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// NoColumn says in Columns.Headers that the table has no such column.
const NoColumn = "-"

// A Table describes an outbox table that is not the default one. The zero value is the default.
type Table struct {
	// Name is the table's name, {"outbox"} or {"schema", "outbox"}, as it stands in the catalog:
	// it is quoted. Nil means outbox, found by the search_path.
	Name pgx.Identifier
	// Columns are the columns that Write fills. All others must have a default or allow NULL.
	Columns Columns
	// PayloadType is the type of the payload column. Empty means JSONB.
	PayloadType PayloadType
}

// Columns are the names of columns as they stand in the catalog. Each is named after the field of
// Event that goes there; empty means the name in its comment. The identity must be of type uuid or
// a text type, the headers of type jsonb or json, and the others of a text type.
type Columns struct {
	ID            string // id
	AggregateType string // aggregatetype
	AggregateID   string // aggregateid
	Type          string // type
	Payload       string // payload
	Headers       string // headers; NoColumn if there is none
}

// A PayloadType is a Postgres type that can hold a payload.
type PayloadType string

// The types of payload columns. JSONB keeps the value of a JSON document; the others keep the
// bytes that Write is given.
const (
	JSONB PayloadType = "jsonb"
	JSON  PayloadType = "json"
	Text  PayloadType = "text"
	Bytea PayloadType = "bytea"
)

func (t Table) withDefaults() Table {
	if len(t.Name) == 0 {
		t.Name = pgx.Identifier{"outbox"}
	}
	c := &t.Columns
	c.ID = cmp.Or(c.ID, "id")
	c.AggregateType = cmp.Or(c.AggregateType, "aggregatetype")
	c.AggregateID = cmp.Or(c.AggregateID, "aggregateid")
	c.Type = cmp.Or(c.Type, "type")
	c.Payload = cmp.Or(c.Payload, "payload")
	c.Headers = cmp.Or(c.Headers, "headers")
	t.PayloadType = cmp.Or(t.PayloadType, JSONB)
	return t
}

func (t Table) validate() error {
	if len(t.Name) > 2 {
		return errors.New("outbox: Table.Name: want table or schema, table")
	}
	switch t.PayloadType {
	case JSONB, JSON, Text, Bytea:
	default:
		return fmt.Errorf("outbox: Table.PayloadType: %q is not one of jsonb, json, text, bytea", string(t.PayloadType))
	}
	seen := make(map[string]bool)
	for _, c := range t.columns() {
		if seen[c] {
			return fmt.Errorf("outbox: Table.Columns: column %q is named twice", c)
		}
		seen[c] = true
	}
	return nil
}

// columns returns the columns in the order of the statements' parameters.
func (t Table) columns() []string {
	c := t.Columns
	list := []string{c.ID, c.AggregateType, c.AggregateID, c.Type, c.Payload}
	if c.Headers != NoColumn {
		list = append(list, c.Headers)
	}
	return list
}

// statements returns what inserts one event from one parameter per column, and what inserts many
// from one array per column. Both say the type of every parameter, so that pgx's modes without a
// prepared statement behind a pooler work as well.
//
// The rows of unnest come in the order of the arrays, and the server inserts and numbers them as
// they come: an identity column counts in the order of Write's events.
func (t Table) statements() (one, many string) {
	types := []string{"uuid", "text", "text", "text", string(t.PayloadType), "jsonb"}
	columns := t.columns()
	quoted := make([]string, len(columns))
	params := make([]string, len(columns))
	arrays := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = pgx.Identifier{c}.Sanitize()
		params[i] = fmt.Sprintf("$%d::%s", i+1, types[i])
		arrays[i] = fmt.Sprintf("$%d::%s[]", i+1, types[i])
	}
	into := fmt.Sprintf("INSERT INTO %s (%s) ", t.Name.Sanitize(), strings.Join(quoted, ", "))
	return into + "VALUES (" + strings.Join(params, ", ") + ")",
		into + "SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ")"
}
