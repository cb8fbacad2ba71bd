package encode

import (
	"fmt"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
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

func (f *finder) envelope(cfg Config, p *plan, members []member) *envelope {
	e := &envelope{members: append([]member{{name: payloadMember, field: p.payload}}, members...)}
	e.texts = make([][]byte, len(e.members))
	var fields []connect.NamedField
	for _, m := range e.members {
		if of, _, err := f.converter(m.field, cfg.Encoding.Value); err == nil { // otherwise there is a problem, and no record
			fields = append(fields, connect.NamedField{Name: m.name, Field: of})
		}
	}
	var expand *connect.Expansion
	if p.payload.expanded {
		expand = &cfg.Debezium.Expansion
	}
	e.object = connect.NewStruct(fields, expand)
	if cfg.Encoding.Value == format.JSONSchema {
		e.schema = f.schema(cfg, p)
	}
	return e
}

func (f *finder) schema(cfg Config, p *plan) *schema {
	payload := f.types.column(p.payload, true)
	s := &schema{
		prefix:  cfg.Debezium.Name + "." + p.table + ".",
		suffix:  ".Value",
		payload: fmt.Sprint(payload.Type.OID, payload.Nullable),
	}
	if f.message { // the row of a message has a schema without name
		s.prefix, s.suffix = "", ""
	}
	if v := cfg.Columns.SchemaVersion; len(v) > 0 {
		const key = "columns.schema_version"
		s.version = new(f.need(v, key))
		f.integer(*s.version, key)
	}
	return s
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
