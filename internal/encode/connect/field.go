package connect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// Modes are the options of the connector that decide which Connect type a column has.
// The zero value means Debezium's defaults.
type Modes struct {
	Decimal  string // decimal.handling.mode: precise (default), double, string
	Time     string // time.precision.mode: adaptive (default), adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds
	Interval string // interval.handling.mode: numeric (default), string
	HStore   string // hstore.handling.mode: json (default), map
	Binary   string // binary.handling.mode: bytes (default), base64, base64-url-safe, hex

	// MoneyDigits is money.fraction.digits, the scale of money columns. Nil means 2.
	MoneyDigits *int

	// Exact makes the conversion fail for values that Debezium damages. Without it they are written
	// in the form that the package comment lists.
	Exact bool
}

// BinaryIsText reports whether bytea columns are text.
func (m Modes) BinaryIsText() bool { return m.Binary != "" && m.Binary != "bytes" }

// modes are the resolved Modes, with defaults filled in.
type modes struct {
	Modes
	moneyDigits int
}

func (m Modes) resolve() (modes, error) {
	for _, o := range []struct {
		option, value string
		allowed       []string
	}{
		{"decimal.handling.mode", m.Decimal, []string{"precise", "double", "string"}},
		{"time.precision.mode", m.Time, []string{"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"}},
		{"interval.handling.mode", m.Interval, []string{"numeric", "string"}},
		{"hstore.handling.mode", m.HStore, []string{"json", "map"}},
		{"binary.handling.mode", m.Binary, []string{"bytes", "base64", "base64-url-safe", "hex"}},
	} {
		if o.value != "" && !slices.Contains(o.allowed, o.value) {
			return modes{}, fmt.Errorf("%s: %q is not one of %v", o.option, o.value, o.allowed)
		}
	}
	r := modes{Modes: m, moneyDigits: 2}
	if m.MoneyDigits != nil {
		r.moneyDigits = *m.MoneyDigits
	}
	if r.moneyDigits < 0 {
		return modes{}, fmt.Errorf("money.fraction.digits: %d is negative", r.moneyDigits)
	}
	return r, nil
}

// An UnsupportedError is the error for a column whose type Debezium does not convert; Debezium omits
// such columns from its rows.
type UnsupportedError struct{ Column, Type string }

// Error names the column and its type.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("column %q: Debezium leaves values of type %s out", e.Column, e.Type)
}

// A DroppedError is the error for a column whose type was dropped, if the conversion depends on more than its name.
type DroppedError struct{ Column, Type string }

// Error names the column and its type.
func (e *DroppedError) Error() string {
	return fmt.Sprintf("column %q: its type, %s, was dropped after the row was written, and the encoding needs its definition", e.Column, e.Type)
}

// needsDefinition reports whether the codec of a type depends on its modifier, its kind or its labels.
func needsDefinition(t format.Type, m modes) bool {
	if t.Elem != nil {
		return needsDefinition(*t.Elem, m)
	}
	switch t.OID {
	case oidNumeric:
		return m.Decimal != "double" && m.Decimal != "string"
	case oidMoney, oidBit, oidVarbit, oidTime, oidTimestamp, oidTimestamptz:
		return true
	}
	t.Kind, t.Modifier = 'b', -1
	_, ok := codecOf(t, m)
	return !ok
}

var (
	errNotBytea   = errors.New("not a bytea column: ByteArrayConverter converts no other type")
	errDefault    = errors.New("NULL where the column has a default: Debezium writes the default")
	errNotEncoded = errors.New("unknown encoding")
)

// A Field converts the values of one column. It is safe for concurrent use.
type Field struct {
	name   string
	codec  codec
	exact  bool
	bytea  bool   // whatever the mode
	prefix string // of JSONSchema: all before the payload
}

// NewField returns the Field of a column. The error is an [*UnsupportedError] if Debezium does not
// convert the column's type, and a [*DroppedError] if that is not known any more; any other error is about
// an invalid mode.
func NewField(c format.Column, m Modes) (*Field, error) {
	r, err := m.resolve()
	if err != nil {
		return nil, err
	}
	if c.Type.Dropped && needsDefinition(c.Type, r) {
		return nil, &DroppedError{Column: c.Name, Type: c.Type.Name}
	}
	f := &Field{
		name: c.Name, exact: m.Exact,
		bytea: c.Type.OID == oidBytea,
	}
	var ok bool
	if f.codec, ok = codecOf(c.Type, r); !ok {
		name := c.Type.Name
		if name == "" {
			name = fmt.Sprint("with OID ", c.Type.OID)
		}
		return nil, &UnsupportedError{Column: c.Name, Type: name}
	}
	f.codec.schema.optional = c.Nullable
	if c.Default != nil {
		text, err := f.codec.append(nil, jsonValue, []byte(*c.Default))
		if err == nil {
			f.codec.schema.defaults = string(text)
		}
	}
	f.prefix = schemaPrefix(&f.codec.schema)
	return f, nil
}

// schemaPrefix returns the text that JsonConverter writes before a value of the schema.
func schemaPrefix(s *schema) string {
	return string(append(s.appendJSON([]byte(`{"schema":`)), `,"payload":`...))
}

// Name returns the column's name.
func (f *Field) Name() string { return f.name }

// Verbatim reports whether [Field.Append] with enc copies every non-NULL text of the column
// unchanged.
func (f *Field) Verbatim(enc format.Encoding) bool {
	switch enc {
	case format.Raw:
		return !f.bytea
	case format.String, format.Simple:
		return f.codec.same
	case format.JSON:
		return f.codec.number
	case format.JSONSchema, format.Bytes:
	}
	return false
}

// Append converts the column's text with enc and appends the result to dst. A nil text is SQL's
// NULL. If the key, value or header of the record is to be null, Append reports null and appends
// nothing. The error says why the value cannot be converted and does not contain the value; dst is
// returned unchanged then.
func (f *Field) Append(dst []byte, enc format.Encoding, text []byte) (out []byte, null bool, err error) {
	if text == nil {
		return f.appendNull(dst, enc)
	}
	switch enc {
	case format.Raw:
		if !f.bytea {
			return append(dst, text...), false, nil
		}
		out, err = appendBytea(dst, text)
	case format.Bytes:
		if !f.bytea || f.codec.text {
			return dst, false, errNotBytea
		}
		out, err = appendBytea(dst, text)
	case format.String:
		out, err = f.codec.append(dst, java, text)
	case format.Simple:
		out, err = f.codec.append(dst, plain, text)
	case format.JSON:
		out, err = f.codec.append(dst, jsonValue, text)
	case format.JSONSchema:
		if out, err = f.codec.append(append(dst, f.prefix...), jsonTyped, text); err == nil {
			out = append(out, '}')
		}
	default:
		err = errNotEncoded
	}
	if err != nil {
		return dst, false, err
	}
	return out, false, nil
}

func (f *Field) appendNull(dst []byte, enc format.Encoding) (out []byte, null bool, err error) {
	if f.exact && f.codec.schema.defaults != "" && enc != format.Raw {
		return dst, false, errDefault
	}
	switch enc {
	case format.JSON:
		return append(dst, "null"...), false, nil
	case format.JSONSchema:
		return append(append(dst, f.prefix...), "null}"...), false, nil
	case format.Raw, format.String, format.Simple, format.Bytes:
	}
	return dst, true, nil
}

// Codec returns the Codec that converts values with enc. If expand is not nil, JSON documents are expanded.
func (f *Field) Codec(enc format.Encoding, expand *Expansion) format.Codec {
	return &fieldCodec{field: f, encoding: enc, expand: expand}
}

type fieldCodec struct {
	field    *Field
	encoding format.Encoding
	expand   *Expansion
}

func (c *fieldCodec) Append(dst, text []byte) (out []byte, null bool, err error) {
	if c.expand != nil {
		return c.field.AppendExpanded(dst, c.encoding, *c.expand, text)
	}
	return c.field.Append(dst, c.encoding, text)
}
