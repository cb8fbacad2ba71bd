package encode

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
)

// An envelope is a value that is an object with the payload and the placed columns.
type envelope struct {
	members []member // the payload first
	object  *connect.Struct
	texts   [][]byte // texts of the members in the current row
	schema  *schema  // nil: without schema
}

// A member is a column of an envelope.
type member struct {
	name  string
	field field
}

// A schema makes the schema name of an envelope.
type schema struct {
	prefix  string // prefix of the name, before the route
	suffix  string // the rest of the name, after the route
	payload string // type of the payload, as far as Debezium distinguishes schemas by it
	version *field // nil: none
	number  int32  // version of the current row
}

// value finds the columns of the value.
func (f *finder) value(cfg Config, p *plan, members []member) {
	var expand *connect.Expansion
	if cfg.Debezium.Expand {
		expand = &cfg.Debezium.Expansion
	}
	enc := f.delegated(ColumnNames{p.payload.name}, cfg.Encoding.Value, cfg.Debezium.ValueDelegate)
	if !isJSON(enc) {
		expand = nil // bytea, which has no members
	}
	if err := f.encode(&p.payload, enc, expand); err != nil {
		f.problem("column %q %v (outbox.encoding.value)", p.payload.name, err)
		return
	}
	p.emptyIsNull = cfg.TombstoneOnEmpty && (p.payload.oid != oidBytea || p.payload.convert != nil && cfg.Debezium.Modes.BinaryIsText())
	if p.payload.convert == nil || !slices.ContainsFunc(cfg.Place, func(pl Placement) bool { return pl.To == ToEnvelope }) {
		return
	}
	e := &envelope{members: append([]member{{name: payloadMember, field: p.payload}}, members...)}
	e.texts = make([][]byte, len(e.members))
	var fields []connect.NamedField
	for _, m := range e.members {
		if m.field.convert != nil { // otherwise the column is missing, and there is no record
			fields = append(fields, connect.NamedField{Name: m.name, Field: m.field.convert.field})
		}
	}
	e.object = connect.NewStruct(fields, p.payload.convert.expand)
	if cfg.Encoding.Value == connect.JSONSchema {
		e.schema = f.schema(cfg, p)
	}
	p.envelope = e
}

func (f *finder) schema(cfg Config, p *plan) *schema {
	payload := f.types.column(p.payload, true)
	s := &schema{
		prefix:  cfg.Debezium.Name + "." + p.table + ".",
		suffix:  ".Value",
		payload: fmt.Sprint(payload.Type.OID, payload.Nullable),
	}
	if f.documents != nil { // the row of a message has a schema without name
		s.prefix, s.suffix = "", ""
	}
	if v := cfg.Columns.SchemaVersion; len(v) > 0 {
		const key = "columns.schema_version"
		s.version = new(f.need(v, key))
		f.integer(*s.version, key)
	}
	return s
}

// value returns the record's value.
func (b *builder) value() []byte {
	if b.r.cfg.TombstoneOnEmpty && b.isEmpty() {
		return nil
	}
	if b.plan.envelope == nil {
		return b.part(&b.plan.payload)
	}
	return b.envelope(b.plan.envelope)
}

// isEmpty reports whether the payload is NULL or counts as empty.
func (b *builder) isEmpty() bool {
	text := b.text(&b.plan.payload)
	switch {
	case text == nil:
		return true
	case b.plan.payload.oid == oidBytea: // Debezium's text for it is blank only if it is empty
		return b.plan.emptyIsNull && string(text) == `\x`
	}
	return b.plan.emptyIsNull && isBlank(text)
}

// isBlank reports whether java.lang.String.trim returns an empty string for text.
func isBlank(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r > ' ' })
}

func (b *builder) envelope(e *envelope) []byte {
	for i := range e.members {
		e.texts[i] = b.text(&e.members[i].field)
	}
	var name string
	var version *int32
	if e.schema != nil {
		version = b.schemaVersion(e.schema)
		name = b.schemaName(e.schema, version)
	}
	return b.scratch(b.plan.payload.name, func(dst []byte) ([]byte, error) {
		return e.object.Append(dst, b.r.cfg.Encoding.Value, name, version, e.texts)
	})
}

// schemaVersion returns the version in the row, or nil for NULL.
func (b *builder) schemaVersion(s *schema) *int32 {
	if s.version == nil {
		return nil
	}
	text := b.text(s.version)
	if text == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		b.fail(s.version.name, "is not a schema's version")
	}
	s.number = int32(n)
	return &s.number
}

// schemaName returns the schema name of the envelope. Debezium uses, for every row with the same version (or
// without a version: with the same type of payload), the name of the first such row since its start. Exact
// does the same.
func (b *builder) schemaName(s *schema, version *int32) string {
	route := b.text(&b.plan.route)
	if !b.r.cfg.Debezium.Exact {
		return s.prefix + string(route) + s.suffix
	}
	key := s.payload
	if version != nil {
		key = fmt.Sprint("version ", *version)
	}
	name, ok := b.r.schemaNames[key]
	if !ok && b.err == nil {
		name = s.prefix + string(route) + s.suffix
		b.r.schemaNames[key] = name
	}
	return name
}
