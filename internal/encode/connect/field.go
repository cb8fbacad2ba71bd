package connect

import (
	"errors"
	"fmt"
	"slices"
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

// A Column describes a column of a table, as the catalog has it.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
	Default  *string // the default's value as text, evaluated; nil: none, or not constant
}

// A Type is a column's type; domains are resolved to their base.
type Type struct {
	OID      uint32   // built-in types are recognised by it
	Name     string   // pg_type.typname; types of extensions (citext, hstore, ltree) are recognised by it
	Kind     byte     // pg_type.typtype: 'b' base, 'c' composite, 'e' enum, 'r' range, 'm' multirange
	Elem     *Type    // of an array; nil otherwise, and optional where the OID is that of a built-in array
	Labels   []string // of an enum, in pg_enum's order: they are part of its schema
	Modifier int32    // atttypmod, -1 for none; of a domain: the domain's

	// Dropped says that the type, or the domain over it, is gone: only OID and Name are known, and Elem of a built-in array.
	Dropped bool

	// MoneyPlaces is the number of decimal places of money, if the currency of the database does not have 2. The text is
	// then not that of the locale C.
	MoneyPlaces *int
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
func (t Type) needsDefinition(m modes) bool {
	if t.Elem != nil {
		return t.Elem.needsDefinition(m)
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
func NewField(c Column, m Modes) (*Field, error) {
	r, err := m.resolve()
	if err != nil {
		return nil, err
	}
	if c.Type.Dropped && c.Type.needsDefinition(r) {
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
func (f *Field) Verbatim(enc Encoding) bool {
	switch enc {
	case Raw:
		return !f.bytea
	case String, Simple:
		return f.codec.same
	case JSON:
		return f.codec.number
	case JSONSchema, Bytes:
	}
	return false
}

// Append converts the column's text with enc and appends the result to dst. A nil text is SQL's
// NULL. If the key, value or header of the record is to be null, Append reports null and appends
// nothing. The error says why the value cannot be converted and does not contain the value; dst is
// returned unchanged then.
func (f *Field) Append(dst []byte, enc Encoding, text []byte) (out []byte, null bool, err error) {
	if text == nil {
		return f.appendNull(dst, enc)
	}
	switch enc {
	case Raw:
		if !f.bytea {
			return append(dst, text...), false, nil
		}
		out, err = appendBytea(dst, text)
	case Bytes:
		if !f.bytea || f.codec.text {
			return dst, false, errNotBytea
		}
		out, err = appendBytea(dst, text)
	case String:
		out, err = f.codec.append(dst, java, text)
	case Simple:
		out, err = f.codec.append(dst, plain, text)
	case JSON:
		out, err = f.codec.append(dst, jsonValue, text)
	case JSONSchema:
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

func (f *Field) appendNull(dst []byte, enc Encoding) (out []byte, null bool, err error) {
	if f.exact && f.codec.schema.defaults != "" && enc != Raw {
		return dst, false, errDefault
	}
	switch enc {
	case JSON:
		return append(dst, "null"...), false, nil
	case JSONSchema:
		return append(append(dst, f.prefix...), "null}"...), false, nil
	case Raw, String, Simple, Bytes:
	}
	return dst, true, nil
}

// An Encoding names the converter of Kafka Connect whose bytes are written.
type Encoding string

// The encodings, and the converters whose bytes they are.
const (
	// Raw uses no converter: bytea is decoded, and any other column is its text as Postgres prints it.
	Raw Encoding = "raw"

	// String is org.apache.kafka.connect.storage.StringConverter.
	String Encoding = "string"

	// Simple is org.apache.kafka.connect.storage.SimpleHeaderConverter.
	Simple Encoding = "simple"

	// JSON is org.apache.kafka.connect.json.JsonConverter with schemas.enable=false.
	JSON Encoding = "json"

	// JSONSchema is the same with schemas.enable=true: {"schema":…,"payload":…}.
	JSONSchema Encoding = "json-schema"

	// Bytes is org.apache.kafka.connect.converters.ByteArrayConverter, and
	// io.debezium.converters.BinaryDataConverter without a delegate: bytea columns only.
	Bytes Encoding = "bytes"
)
