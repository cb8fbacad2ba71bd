package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Config configures a [Writer]. The zero value is for the table that `outbox-cdc migrate up` creates. The
// package-level functions use the zero value.
type Config struct {
	// Table is the name of the table, {"outbox"} or {"schema", "outbox"}, as in the catalog: it is
	// quoted. Nil means outbox, found with the search_path.
	Table pgx.Identifier

	// Columns are the columns that Write fills. All other columns need a default or must allow NULL.
	Columns Columns

	// PayloadType is the type of the payload column. Empty means JSONB.
	PayloadType PayloadType

	// MessagePrefix is the prefix of the messages of WriteMessage. The relay needs it in
	// outbox.messages. Empty means outbox. The prefix outbox-cdc is
	// reserved for the relay.
	MessagePrefix string

	// MaxBytes is the largest allowed record, as Kafka counts it: key, value, headers and framing,
	// uncompressed. A larger event is an error, so that it does not become a row that the relay
	// cannot deliver. Set it to max.message.bytes of the topics, or some kilobytes less if the relay
	// adds headers. Zero means 1,000,000; the default of a topic is 1,048,588.
	MaxBytes int

	// Trace returns headers for the events of a call, such as traceparent, from the call's context. It
	// is called once for each call. An event's own headers replace those with the same name. Nil
	// means no such headers.
	Trace func(ctx context.Context) map[string]string
}

// NoColumn in Columns.Headers means that the table has no column for headers.
const NoColumn = "-"

// Columns has the names of columns, as in the catalog, by the field of Event that goes there. Empty
// means the name in the comment. The column of ID has type uuid or a text type, that of Headers jsonb
// or json, those of Partition and SchemaVersion integer, and the others a text type. Config.PayloadType
// is the type of Payload.
type Columns struct {
	ID            string // id
	AggregateType string // aggregatetype
	AggregateID   string // aggregateid
	Type          string // type
	Payload       string // payload
	Headers       string // headers; NoColumn if the table has none

	// Partition is the column of Event.Partition. Empty means no such column; then an event with a
	// partition is an error. The relay needs it too: outbox.place: [{column: …, to: partition}].
	Partition string

	// SchemaVersion is the column of Event.SchemaVersion. The relay needs it in
	// outbox.columns.schema_version. Empty means that the version is the header schemaVersion.
	SchemaVersion string
}

// A PayloadType is the Postgres type of a payload column.
type PayloadType string

// The types of payload columns. JSONB keeps the value of a JSON document. The others keep its bytes.
const (
	JSONB PayloadType = "jsonb"
	JSON  PayloadType = "json"
	Text  PayloadType = "text"
	Bytea PayloadType = "bytea"
)

const defaultMaxBytes = 1_000_000

func (c Config) withDefaults() Config {
	if len(c.Table) == 0 {
		c.Table = pgx.Identifier{"outbox"}
	}
	n := &c.Columns
	n.ID = cmp.Or(n.ID, "id")
	n.AggregateType = cmp.Or(n.AggregateType, "aggregatetype")
	n.AggregateID = cmp.Or(n.AggregateID, "aggregateid")
	n.Type = cmp.Or(n.Type, "type")
	n.Payload = cmp.Or(n.Payload, "payload")
	n.Headers = cmp.Or(n.Headers, "headers")
	c.PayloadType = cmp.Or(c.PayloadType, JSONB)
	c.MessagePrefix = cmp.Or(c.MessagePrefix, "outbox")
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	return c
}

func (c Config) validate() error {
	if len(c.Table) > 2 {
		return errors.New("outbox: Config.Table: want {table} or {schema, table}")
	}
	switch c.PayloadType {
	case JSONB, JSON, Text, Bytea:
	default:
		return fmt.Errorf("outbox: Config.PayloadType: %q is not one of jsonb, json, text, bytea", string(c.PayloadType))
	}
	if c.MessagePrefix == reservedPrefix || textProblem(c.MessagePrefix) != "" {
		return fmt.Errorf("outbox: Config.MessagePrefix: %q is reserved or not valid text", c.MessagePrefix)
	}
	if c.MaxBytes < 0 {
		return fmt.Errorf("outbox: Config.MaxBytes: %d is negative", c.MaxBytes)
	}
	seen := make(map[string]bool)
	for _, column := range c.columns() {
		if seen[column.name] {
			return fmt.Errorf("outbox: Config.Columns: column %q is named twice", column.name)
		}
		seen[column.name] = true
	}
	return nil
}

// reservedPrefix is the prefix of the relay's own messages.
const reservedPrefix = "outbox-cdc"

// A column is a column that is filled.
type column struct {
	name  string
	kind  string         // the type of its parameter
	value func(*row) any // a string, bytes if kind is bytea, or nil
}

// columns returns the columns in the order of the statements' parameters.
func (c Config) columns() []column {
	n := c.Columns
	list := []column{
		{n.ID, "uuid", func(r *row) any { return r.id }},
		{n.AggregateType, "text", func(r *row) any { return r.event.AggregateType }},
		{n.AggregateID, "text", func(r *row) any { return r.event.AggregateID }},
		{n.Type, "text", func(r *row) any { return r.event.Type }},
		{n.Payload, string(c.PayloadType), (*row).payloadValue},
	}
	if c.PayloadType == Bytea {
		list[4].value = (*row).payloadBytes
	}
	if n.Headers != NoColumn {
		list = append(list, column{n.Headers, "jsonb", (*row).headersValue})
	}
	if n.Partition != "" {
		list = append(list, column{n.Partition, "integer", (*row).partitionValue})
	}
	if n.SchemaVersion != "" {
		list = append(list, column{n.SchemaVersion, "integer", (*row).schemaVersionValue})
	}
	return list
}

// statements returns the statement for one event, with one parameter per column, and the statement for
// many, with one array per column. Both declare the type of each parameter, and each parameter is
// text. So they work with any driver, and in the modes of pgx that prepare no statements.
//
// unnest returns rows in the order of the arrays, and the server inserts them in this order. So an
// identity column counts in the order of the events.
func (c Config) statements(columns []column) (one, many string) {
	quoted := make([]string, len(columns))
	params := make([]string, len(columns))
	arrays := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = pgx.Identifier{column.name}.Sanitize()
		params[i] = fmt.Sprintf("$%d::%s", i+1, column.kind)
		arrays[i] = fmt.Sprintf("$%d::%s[]", i+1, column.kind)
	}
	into := fmt.Sprintf("INSERT INTO %s (%s) ", c.Table.Sanitize(), strings.Join(quoted, ", "))
	return into + "VALUES (" + strings.Join(params, ", ") + ")",
		into + "SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ")"
}
