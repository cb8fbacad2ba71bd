package encode

import "github.com/outbox-cdc/outbox-cdc/internal/encode/connect"

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
