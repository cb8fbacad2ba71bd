package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Config describes where a [Writer] writes, and what it takes for too much. The zero value is the
// table that `outbox-cdc migrate up` makes, and what the package-level functions use.
type Config struct {
	// Table is the table's name, {"outbox"} or {"schema", "outbox"}, as it stands in the catalog:
	// it is quoted. Nil means outbox, found by the search_path.
	Table pgx.Identifier

	// Columns are the columns that are filled. All others must have a default or allow NULL.
	Columns Columns

	// PayloadType is the type of the payload column. Empty means JSONB.
	PayloadType PayloadType

	// MessagePrefix is the prefix of the messages of Emit. The relay has it in outbox.messages.
	// Empty means outbox. The prefixes outbox-cdc and "outbox-cdc prune" are reserved: relays never
	// treat their messages as rows.
	MessagePrefix string

	// MaxBytes is how large a record may be, as Kafka counts it: key, value, headers and their
	// framing, uncompressed. A larger event is refused, before it becomes a row that the relay
	// cannot deliver. Set it with max.message.bytes of the topics, some kilobytes below it if the
	// relay adds headers. Zero means 1,000,000, which a topic takes by default (1,048,588).
	MaxBytes int

	// Trace returns headers for the events of a call, such as traceparent, taken from its context;
	// it is called once for each call. An event's own headers come before those. Nil adds nothing.
	Trace func(ctx context.Context) map[string]string
}

// NoColumn says in Columns.Headers that the table has no such column.
const NoColumn = "-"

// Columns are the names of columns as they stand in the catalog. Each is named after the field of
// Event that goes there; empty means the name in its comment. The identity must be of type uuid or
// a text type, the headers of type jsonb or json, partition and schema version of type integer,
// and the others of a text type.
type Columns struct {
	ID            string // id
	AggregateType string // aggregatetype
	AggregateID   string // aggregateid
	Type          string // type
	Payload       string // payload
	Headers       string // headers; NoColumn if there is none

	// Partition holds Event.Partition. Empty: there is no such column, and no event may name a
	// partition. The relay must know the column too:
	// outbox.place: [{column: …, to: partition}].
	Partition string

	// SchemaVersion holds Event.SchemaVersion, for a relay with outbox.columns.schema_version.
	// Empty: the version is the header schemaVersion.
	SchemaVersion string
}

// A PayloadType is a Postgres type that can hold a payload.
type PayloadType string

// The types of payload columns. JSONB keeps the value of a JSON document; the others keep the
// bytes that they are given.
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
		return errors.New("outbox: Config.Table: want table or schema, table")
	}
	switch c.PayloadType {
	case JSONB, JSON, Text, Bytea:
	default:
		return fmt.Errorf("outbox: Config.PayloadType: %q is not one of jsonb, json, text, bytea", string(c.PayloadType))
	}
	if reserved(c.MessagePrefix) || textProblem(c.MessagePrefix) != "" {
		return fmt.Errorf("outbox: Config.MessagePrefix: %q cannot be the prefix of events", c.MessagePrefix)
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

// reserved reports whether relays ignore messages with prefix, whatever outbox.messages is.
func reserved(prefix string) bool { return prefix == "outbox-cdc" || prefix == "outbox-cdc prune" }

// A column is one that is filled.
type column struct {
	name  string
	kind  string         // the type its parameter has in SQL
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

// statements returns what inserts one event from one parameter per column, and what inserts many
// from one array per column. Both say the type of every parameter, and every parameter is text: so
// they work with any driver, and in pgx's modes without a prepared statement behind a pooler.
//
// The rows of unnest come in the order of the arrays, and the server inserts and numbers them as
// they come: an identity column counts in the order of the events.
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
