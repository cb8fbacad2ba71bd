// Package format has what the formats of records share: the names of the encodings, the columns whose values they write, and
// [Codec], by which encode writes a value without knowing its format. The relay's own format is that of the column: its
// text, or the bytes of bytea, and needs no Codec. Package connect has the formats of Debezium.
package format

// A Codec converts the values of one column to a part of a record.
type Codec interface {
	// Append converts the column's text, which is nil for NULL, and appends the result to dst. If the part of the
	// record is to be null, it reports null and appends nothing. The error says why the value cannot be converted and
	// does not contain the value; dst is returned unchanged then.
	Append(dst, text []byte) (out []byte, null bool, err error)
}

// An Encoding names a format of the parts of a record.
type Encoding string

// The encodings, and the converters of Kafka Connect whose bytes they are.
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
