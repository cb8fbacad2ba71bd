package encode

import (
	"cmp"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// Config says which column of an outbox row becomes which part of its record. With [DefaultColumns]
// and zero values otherwise, every part has the column's own bytes.
type Config struct {
	// Columns names the columns. Start from [DefaultColumns].
	Columns Columns

	// Topic is the template of the topic name: text in which ${name} is replaced by the value
	// of a column. name is id, key, route or type, for the column with this role, or the name
	// of any other column. $$ is a dollar sign. Empty means [DefaultTopic].
	Topic string

	// TopicRules are applied to the result of Topic, one after the other.
	TopicRules []TopicRule

	// Names are the broker's rules for names of topics. Required.
	Names Names

	// Reserved are topics that rows must not be sent to: those of the relay itself.
	Reserved []string

	// TombstoneOnEmpty makes a payload that has only spaces and control characters a null
	// value. An empty bytea stays empty. A payload that is NULL is always a null value, unless
	// it is encoded.
	TombstoneOnEmpty bool

	// Place adds further columns to the record. Headers and members have this order.
	Place []Placement

	// OnMissingColumn says what happens if a table lacks the column of a Placement. Empty
	// means [MissingError].
	OnMissingColumn Missing

	// OnUpdate says what happens to an updated row. Empty means [UpdateStop].
	OnUpdate Updates

	// Encoding says how the values of columns are encoded.
	Encoding Encodings

	// Static are headers of every record, with text values, after all other headers.
	Static []StaticHeader

	// LSNHeader adds the header lsn: the commit LSN and the index of the row in its transaction, from 0, such as
	// 0/1A2B3C8:7. Rows that are read from a table have no position, and no such header.
	LSNHeader bool

	// Debezium has the options for records that must equal those of Debezium.
	Debezium Debezium
}

// DefaultTopic is the default of Config.Topic.
const DefaultTopic = "outbox.event.${route}"

// The headers of every record, in this order. Config can leave out the last two.
const (
	IDHeader   = "id"
	TypeHeader = "eventType"
	LSNHeader  = "lsn"
)

// ColumnNames are the names of a column. The first one that a table has is used, so that a column may have another
// name in another table, or after it was renamed. No names: there is no such column.
type ColumnNames []string

// in returns the name that is used for rel, or "" if it has none of them.
func (n ColumnNames) in(rel *decoder.Relation) string {
	for _, name := range n {
		if slices.ContainsFunc(rel.Columns, func(c decoder.Column) bool { return c.Name == name }) {
			return name
		}
	}
	return ""
}

// Columns names the columns of an outbox table by their role.
type Columns struct {
	ID      ColumnNames // header "id"; must not be NULL
	Key     ColumnNames // record key; NULL is a null key
	Route   ColumnNames // ${route} in the topic template
	Type    ColumnNames // header "eventType"; empty: no such header
	Payload ColumnNames // record value; NULL is a null value

	// Timestamp is a timestamp or timestamptz column with the record's timestamp. If it is
	// empty or the value is NULL, the record has the commit time of the transaction.
	Timestamp ColumnNames

	// SchemaVersion is an integer column with the version of the envelope's schema. It is used
	// only if there is an envelope with a schema. Empty: none.
	SchemaVersion ColumnNames

	// Headers is a column with a JSON object, whose members become headers: strings as text,
	// other values as JSON. Empty: none. A table may lack the column of the default name, but
	// not one of another name.
	Headers ColumnNames

	// TraceContext is a column with a trace context, which becomes headers: see traceContext.
	// Empty: none.
	TraceContext ColumnNames
}

// DefaultColumns returns the column names of Debezium's outbox event router, and headers.
func DefaultColumns() Columns {
	return Columns{
		ID: ColumnNames{"id"}, Key: ColumnNames{"aggregateid"}, Route: ColumnNames{"aggregatetype"},
		Type: ColumnNames{"type"}, Payload: ColumnNames{"payload"}, Headers: ColumnNames{"headers"},
	}
}

// namesOf returns all names of the column that may have this name.
func (c Columns) namesOf(column string) ColumnNames {
	for _, names := range []ColumnNames{c.ID, c.Key, c.Route, c.Type, c.Payload, c.Timestamp, c.SchemaVersion, c.Headers, c.TraceContext} {
		if slices.Contains(names, column) {
			return names
		}
	}
	return nil
}

// A Target is the part of the record to which a Placement adds a column.
type Target string

// The targets.
const (
	ToHeader    Target = "header"    // a header; NULL is a null value unless it is encoded
	ToEnvelope  Target = "envelope"  // a member of the value, which is then an object, after "payload"
	ToPartition Target = "partition" // the partition number; if NULL, the key decides
)

// Targets returns all targets.
func Targets() []Target { return []Target{ToHeader, ToEnvelope, ToPartition} }

// A Placement adds a column to the record.
type Placement struct {
	Column string
	To     Target
	As     string // name of the header or member; empty means that of the column
}

// name returns the name of the header or member.
func (p Placement) name() string { return cmp.Or(p.As, p.Column) }

// Missing says what happens if a table lacks the column of a Placement.
type Missing string

// The values of Missing.
const (
	MissingError  Missing = "error"  // the table is rejected with a [*ColumnError]
	MissingIgnore Missing = "ignore" // records do not have the column
)

// Missings returns all values of Missing.
func Missings() []Missing { return []Missing{MissingError, MissingIgnore} }

// Updates says what happens to an updated row. With any value but UpdateStop, a row whose identity has
// changed is a new event.
type Updates string

// The values of Updates. The last three differ only in what the caller logs.
const (
	UpdateStop   Updates = "stop"   // rejected
	UpdateIgnore Updates = "ignore" // dropped
	UpdateWarn   Updates = "warn"   // dropped, with a warning
	UpdateError  Updates = "error"  // dropped, with an error in the log
)

// UpdatePolicies returns all values of Updates.
func UpdatePolicies() []Updates { return []Updates{UpdateStop, UpdateIgnore, UpdateWarn, UpdateError} }

// TakesUpdates reports whether the configuration allows updated rows.
func (cfg Config) TakesUpdates() bool { return cfg.OnUpdate != "" && cfg.OnUpdate != UpdateStop }

// Encodings says how the values of columns are encoded, by part of the record. Empty means
// [format.Raw].
type Encodings struct {
	Key     format.Encoding // raw, string, json, json-schema, bytes
	Value   format.Encoding // raw, string, json, json-schema, bytes; an envelope needs json or json-schema
	Headers format.Encoding // raw, simple, string, json, json-schema
}

// A StaticHeader is a header of every record.
type StaticHeader struct{ Name, Value string }

// payloadMember is the envelope's first member.
const payloadMember = "payload"
