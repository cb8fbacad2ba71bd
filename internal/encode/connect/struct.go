package connect

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

var (
	errStruct  = errors.New("an object with StringConverter: Debezium writes Java's description of it")
	errMembers = errors.New("the number of values differs from the number of members")
)

// A NamedField is a member of a struct.
type NamedField struct {
	Name  string
	Field *Field
}

// A Struct converts the values of several columns to one struct, the router's envelope: the payload
// first, then the columns placed in the envelope, in their order. It is safe for concurrent use.
type Struct struct {
	members []structMember
	expand  *Expansion
}

// A structMember is a member with its precomputed JSON.
type structMember struct {
	NamedField
	key    string // its name and a colon
	schema string // its schema as a field
}

// NewStruct returns the Struct with the given members. If expand is not nil, JSON documents in the
// first member are expanded.
func NewStruct(fields []NamedField, expand *Expansion) *Struct {
	s := &Struct{expand: expand}
	for _, f := range fields {
		s.members = append(s.members, structMember{
			NamedField: f,
			key:        string(append(appendJSONString(nil, []byte(f.Name)), ':')),
			schema:     string(f.Field.codec.schema.appendField(nil, f.Name)),
		})
	}
	return s
}

// Append appends the struct of the values, one text per member, nil for NULL. With JSONSchema the
// schema has the given name and, if version is not nil, version; any other encoding writes JSON
// without a schema. With Modes.Exact, Append fails for encodings other than JSON and JSONSchema.
// An error about a value names the member; dst is returned unchanged then.
func (s *Struct) Append(dst []byte, enc format.Encoding, name string, version *int32, values [][]byte) ([]byte, error) {
	if len(values) != len(s.members) {
		return dst, errMembers
	}
	if enc != format.JSONSchema && enc != format.JSON && len(s.members) > 0 && s.members[0].Field.exact {
		return dst, errStruct
	}
	doc, err := s.document(enc, values)
	if err != nil {
		return dst, s.members[0].wrap(err)
	}
	out, typed := dst, enc == format.JSONSchema
	if typed {
		out = s.appendSchema(append(out, `{"schema":`...), doc, name, version)
		out = append(out, `,"payload":`...)
	}
	out = append(out, '{')
	for i := range s.members {
		if i > 0 {
			out = append(out, ',')
		}
		m := &s.members[i]
		out = append(out, m.key...)
		if i == 0 && doc != nil {
			out, err = doc.append(out)
		} else {
			out, err = m.append(out, typed, values[i])
		}
		if err != nil {
			return dst, m.wrap(err)
		}
	}
	if typed {
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// document returns the first member's document, nil if the member is not expanded.
func (s *Struct) document(enc format.Encoding, values [][]byte) (*document, error) {
	if s.expand == nil || len(s.members) == 0 {
		return nil, nil //nolint:nilnil // no document
	}
	if enc != format.JSONSchema {
		enc = format.JSON
	}
	return s.members[0].Field.expand(enc, *s.expand, values[0])
}

func (s *Struct) appendSchema(dst []byte, doc *document, name string, version *int32) []byte {
	dst = append(dst, `{"type":"struct","fields":[`...)
	for i := range s.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		m := &s.members[i]
		if i == 0 && doc != nil {
			of := doc.shape.schema()
			dst = of.appendField(dst, m.Name)
		} else {
			dst = append(dst, m.schema...)
		}
	}
	dst = append(dst, `],"optional":false`...)
	if name != "" {
		dst = appendJSONString(append(dst, `,"name":`...), []byte(name))
	}
	if version != nil {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(*version), 10)
	}
	return append(dst, '}')
}

func (m *structMember) append(dst []byte, typed bool, text []byte) ([]byte, error) {
	if text == nil {
		dst, _, err := m.Field.appendNull(dst, format.JSON)
		return dst, err
	}
	if typed {
		return m.Field.codec.append(dst, jsonTyped, text)
	}
	return m.Field.codec.append(dst, jsonValue, text)
}

func (m *structMember) wrap(err error) error { return fmt.Errorf("member %q: %w", m.Name, err) }
