package route

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/decoder"
)

// Object identifiers of built-in types (src/include/catalog/pg_type.dat).
const (
	oidBytea = 17
	oidInt8  = 20
	oidInt2  = 21
	oidInt4  = 23
	oidJSON  = 114
	oidJSONB = 3802
)

// A field is one column of a relation, found by name.
type field struct {
	name  string
	index int // place in the tuple
	oid   uint32
}

// A plan is a relation's columns by the part they play. It is valid for exactly the
// relation it was made from: the decoder gives a changed definition a new pointer.
type plan struct {
	relation *decoder.Relation
	table    string

	id, key, payload field
	eventType        *field
	headers          *field
	partition        *field
	topic            []topicPart
	placed           []placedHeader
}

type topicPart struct {
	text  string
	field *field // nil: text
}

type placedHeader struct {
	name  string
	field field
}

// newPlan finds the configured columns in rel, or returns a *ColumnError with all that
// are missing.
func newPlan(cfg Config, template []part, rel *decoder.Relation) (*plan, error) {
	p := &plan{relation: rel, table: rel.Namespace + "." + rel.Name}
	f := finder{rel: rel}
	cols := cfg.Columns

	p.id = f.need(cols.ID, "columns.id")
	p.key = f.need(cols.Key, "columns.key")
	f.need(cols.Route, "columns.route")
	p.payload = f.need(cols.Payload, "columns.payload")
	if cols.Type != "" {
		p.eventType = new(f.need(cols.Type, "columns.type"))
	}
	if cols.Headers != "" {
		if h, ok := f.find(cols.Headers); ok {
			p.headers = &h
		} else if cols.Headers != DefaultColumns().Headers {
			f.need(cols.Headers, "columns.headers")
		}
	}
	for _, t := range template {
		tp := topicPart{text: t.text}
		if t.column != "" {
			tp.field = new(f.need(cols.byRole(t.column), "topic"))
		}
		p.topic = append(p.topic, tp)
	}
	for i, pl := range cfg.Place {
		key := fmt.Sprintf("place[%d]", i)
		c := f.need(pl.Column, key)
		switch pl.To {
		case ToHeader:
			name := pl.As
			if name == "" {
				name = pl.Column
			}
			p.placed = append(p.placed, placedHeader{name: name, field: c})
		case ToPartition:
			f.integer(c, key)
			p.partition = &c
		}
	}
	return p, f.err(p.table)
}

// byRole resolves a name of a topic template: the roles first, else the column itself.
func (c Columns) byRole(name string) string {
	switch name {
	case "id":
		return c.ID
	case "key":
		return c.Key
	case "route":
		return c.Route
	case "type":
		if c.Type != "" {
			return c.Type
		}
	}
	return name
}

// A finder looks columns up and collects what is wrong.
type finder struct {
	rel      *decoder.Relation
	problems []string
}

func (f *finder) find(name string) (field, bool) {
	for i, c := range f.rel.Columns {
		if c.Name == name {
			return field{name: name, index: i, oid: c.TypeOID}, true
		}
	}
	return field{}, false
}

func (f *finder) need(name, key string) field {
	c, ok := f.find(name)
	if problem := fmt.Sprintf("no column %q (outbox.%s)", name, key); !ok && !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
	}
	return c
}

func (f *finder) integer(c field, key string) {
	if c.name != "" && !slices.Contains([]uint32{oidInt2, oidInt4, oidInt8}, c.oid) {
		f.problems = append(f.problems, fmt.Sprintf("column %q is not an integer (outbox.%s)", c.name, key))
	}
}

func (f *finder) err(table string) error {
	if len(f.problems) == 0 {
		return nil
	}
	e := &ColumnError{Table: table, Problems: f.problems}
	for _, c := range f.rel.Columns {
		e.Have = append(e.Have, c.Name)
	}
	return e
}

// raw returns the column's bytes in row: nil for NULL, text as Postgres prints it, bytea
// decoded into scratch. reason says why the value cannot be used, "" if it can.
func (c field) raw(row []decoder.Value, scratch *[]byte) (data []byte, reason string) {
	v := row[c.index]
	switch v.Kind {
	case decoder.Null:
		return nil, ""
	case decoder.Text:
	case decoder.Unchanged:
		return nil, "the value was not sent (unchanged TOAST)"
	case decoder.Binary:
		return nil, "the value came in binary form, which was not asked for"
	}
	if c.oid != oidBytea {
		return v.Data, ""
	}
	digits, ok := cutHexPrefix(v.Data)
	if !ok {
		return nil, `bytea is not in hex form; the session's bytea_output was changed`
	}
	start := len(*scratch)
	out, err := hex.AppendDecode(*scratch, digits)
	if err != nil {
		return nil, "bytea is not in hex form"
	}
	*scratch = out
	return out[start:len(out):len(out)], ""
}

func cutHexPrefix(b []byte) ([]byte, bool) {
	if len(b) < 2 || b[0] != '\\' || b[1] != 'x' {
		return nil, false
	}
	return b[2:], true
}
