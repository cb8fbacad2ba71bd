package connect

// An Encoding is what a converter of Kafka Connect makes of a value.
type Encoding string

// The encodings, and the converters whose bytes they are.
const (
	// Raw is no converter at all: the column's own bytes, text as Postgres prints it, bytea decoded.
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
