package encode

import (
	"cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// Config says which column of an outbox row becomes which part of its record. Its zero value,
// with [DefaultColumns], is the profile in which every part is the column's own bytes.
type Config struct {
	// Columns names the columns; take [DefaultColumns] and change what differs.
	Columns Columns

	// Topic is the template of the topic's name: literal text with ${name} for a
	// column's value, where name is one of id, key, route, type (the columns of those
	// roles) or the name of any other column; $$ is a dollar sign.
	// Empty means [DefaultTopic].
	Topic string

	// TopicRules rewrite the name that Topic gives, one after the other.
	TopicRules []TopicRule

	// Reserved are topics that no row may choose: those of the relay itself.
	Reserved []string

	// TombstoneOnEmpty makes a payload of nothing but blanks and control characters a null
	// value, as SQL NULL always is where the payload is not encoded. An empty bytea is not
	// meant.
	TombstoneOnEmpty bool

	// Place puts further columns into the record, headers and members in this order.
	Place []Placement

	// OnMissingColumn is what becomes of a placement whose column a table lacks.
	// Empty means [MissingError].
	OnMissingColumn Missing

	// OnUpdate is what becomes of a changed row. Empty means [UpdateStop].
	OnUpdate Updates

	// Encoding is what becomes of the columns' values.
	Encoding Encodings

	// Static is headers that every record has, behind all others, as text.
	Static []StaticHeader

	// PositionHeaders adds outbox_lsn (the commit LSN), outbox_index (the row's place in
	// its transaction, from 0) and outbox_committed_at (RFC 3339, UTC) to every record.
	PositionHeaders bool

	// Debezium is what only records that must be those of Debezium need.
	Debezium Debezium
}

// DefaultTopic is the topic template used when none is configured.
const DefaultTopic = "outbox.event.${route}"

// The headers every record has, in this order.
const (
	IDHeader   = "id"
	TypeHeader = "eventType"
)

// Columns names the columns of an outbox table by the part they play.
type Columns struct {
	ID      string // header "id"; not NULL
	Key     string // record key; NULL is a null key
	Route   string // ${route} in the topic template
	Type    string // header "eventType"; empty: no such header
	Payload string // record value; NULL is a null value

	// Timestamp is a timestamp or timestamptz column that is the record's timestamp; NULL is
	// the transaction's. Empty: always the transaction's.
	Timestamp string

	// SchemaVersion is an integer column: the version of the envelope's schema, where there
	// is an envelope and its schema is written. Empty: none.
	SchemaVersion string

	// Headers holds a JSON object whose members become headers: strings as their text,
	// anything else as its JSON. Empty: none. A table may lack the column of the default
	// name; a name that was chosen must exist.
	Headers string

	// TraceContext holds the context of a trace, which becomes headers: see traceContext.
	// Empty: none.
	TraceContext string
}

// DefaultColumns returns the names Debezium's outbox event router uses, plus headers.
func DefaultColumns() Columns {
	return Columns{
		ID: "id", Key: "aggregateid", Route: "aggregatetype",
		Type: "type", Payload: "payload", Headers: "headers",
	}
}

// A Target is the part of the record a placed column goes to.
type Target string

// The places a column can be put.
const (
	ToHeader    Target = "header"    // a header; NULL is a null value unless it is encoded
	ToEnvelope  Target = "envelope"  // a member of the value, which is an object then, behind "payload"
	ToPartition Target = "partition" // the partition's number; NULL leaves it to the key
)

// Targets are all of them.
func Targets() []Target { return []Target{ToHeader, ToEnvelope, ToPartition} }

// A Placement puts one more column into the record.
type Placement struct {
	Column string
	To     Target
	As     string // the header's or member's name; empty means the column's
}

// name returns what the column is called in the record.
func (p Placement) name() string { return cmp.Or(p.As, p.Column) }

// Missing is what becomes of a placement whose column a table lacks.
type Missing string

// What can become of it.
const (
	MissingError  Missing = "error"  // the table is refused with a [*ColumnError]
	MissingIgnore Missing = "ignore" // records are made without it
)

// Missings are all of them.
func Missings() []Missing { return []Missing{MissingError, MissingIgnore} }

// Updates is what becomes of a changed row. One whose identity has changed is an event anew,
// unless it is refused.
type Updates string

// What can become of it. Those between say only how the caller is to speak of it.
const (
	UpdateStop   Updates = "stop"   // it is refused
	UpdateIgnore Updates = "ignore" // dropped
	UpdateWarn   Updates = "warn"   // dropped, with a warning
	UpdateError  Updates = "error"  // dropped, with an error in the log
)

// UpdatePolicies are all of them.
func UpdatePolicies() []Updates { return []Updates{UpdateStop, UpdateIgnore, UpdateWarn, UpdateError} }

// TakesUpdates reports whether changed rows have a use: they do not end everything.
func (cfg Config) TakesUpdates() bool { return cfg.OnUpdate != "" && cfg.OnUpdate != UpdateStop }

// Encodings is what becomes of the columns' values, by the part of the record. Empty means
// [connect.Raw].
type Encodings struct {
	Key     connect.Encoding // raw, string, json, json-schema, bytes
	Value   connect.Encoding // raw, string, json, json-schema, bytes; an envelope needs json or json-schema
	Headers connect.Encoding // raw, simple, string, json, json-schema
}

// A StaticHeader is a header that every record has.
type StaticHeader struct{ Name, Value string }

// Debezium is what only records that must be byte for byte those of Debezium's outbox event
// router need. The options of its connector that decide how values are written count where
// [Encodings] says something other than raw.
type Debezium struct {
	// Name is the connector's topic.prefix: it is in context headers and in the names of
	// envelopes' schemas.
	Name string

	// ContextHeaders adds the headers __debezium.context.…, in front of all others, to the
	// records of tables' rows, and to those of rows whose identity has changed
	// __debezium.oldkey in front of them.
	ContextHeaders bool

	// Modes are the connector's options for values.
	Modes connect.Modes

	// Expand makes a payload that is a JSON document that document, where it would be a
	// string of JSON; how, says Expansion.
	Expand    bool
	Expansion connect.Expansion

	// Exact refuses a row where Debezium damages its values, such as an explicit NULL that it
	// replaces by the column's default. Without it such a row has the value that was meant.
	Exact bool
}

// payloadMember is the envelope's first member.
const payloadMember = "payload"

// modes returns the modes with Exact.
func (d Debezium) modes() connect.Modes {
	m := d.Modes
	m.Exact = d.Exact
	return m
}
