package config

import "github.com/outbox-cdc/outbox-cdc/internal/encode"

var defaultColumns = encode.DefaultColumns()

// raw is the default encoding.
const raw = "raw"

func (c *Config) outboxKeys() []key {
	return []key{
		{path: "outbox", doc: "How rows become records."},
		{
			path: "outbox.tables", at: &c.Outbox.Tables, flag: "table", usage: "outbox `table`; may be repeated", def: []string{"outbox"}, pattern: `^[^\x00]*[^\s\x00][^\x00]*$`, rule: "a table name", example: "[public.outbox]",
			doc: "Outbox tables. `run` and `setup` create the publication for them.",
		},
		{
			path: "outbox.messages", at: &c.Outbox.Messages, pattern: `^[^\x00]+$`, rule: "a prefix of messages", example: "[outbox]",
			doc: "Prefixes of logical messages (`pg_logical_emit_message`) to use instead of tables, each in full. Each message is a row: a JSON object with a member per column. Other messages are skipped; the log has the first one of a connection. `*` is every prefix except the reserved `outbox-cdc`.",
		},

		{path: "outbox.columns", doc: "Column names. The defaults are those of Debezium's outbox event router."},
		{path: "outbox.columns.id", at: &c.Outbox.Columns.ID, def: defaultColumns.ID, pattern: `.`, rule: "a column name", doc: "Event id, which becomes the header `id`. It must not be NULL."},
		{path: "outbox.columns.key", at: &c.Outbox.Columns.Key, def: defaultColumns.Key, pattern: `.`, rule: "a column name", doc: "Record key."},
		{path: "outbox.columns.route", at: &c.Outbox.Columns.Route, def: defaultColumns.Route, pattern: `.`, rule: "a column name", doc: "Value of `${route}` in `outbox.topic`."},
		{path: "outbox.columns.type", at: &c.Outbox.Columns.Type, def: defaultColumns.Type, doc: "Event type, which becomes the header `eventType`. Empty: no such header."},
		{path: "outbox.columns.payload", at: &c.Outbox.Columns.Payload, def: defaultColumns.Payload, pattern: `.`, rule: "a column name", doc: "Record value. NULL becomes a tombstone."},
		{
			path: "outbox.columns.timestamp", at: &c.Outbox.Columns.Timestamp, example: "occurred_at",
			doc: "Record timestamp: a `timestamp` or `timestamptz` column. If it is NULL, the record has the commit time. Default: the commit time.",
		},
		{
			path: "outbox.columns.schema_version", at: &c.Outbox.Columns.SchemaVersion,
			doc: "Version of the envelope's schema: an integer column, used with `outbox.encoding.value: json-schema`.",
		},
		{
			path: "outbox.columns.headers", at: &c.Outbox.Columns.Headers, def: defaultColumns.Headers,
			doc: "JSON object whose members become headers. A table need not have the column of the default name. Empty: no such headers.",
		},
		{
			path: "outbox.columns.trace_context", at: &c.Outbox.Columns.TraceContext, example: "tracingspancontext",
			doc: "Trace context of the writer, which becomes headers: a `traceparent`, a JSON object with such headers, or lines of `name=value` as Debezium's libraries write them.",
		},

		{
			path: "outbox.topic", at: &c.Outbox.Topic, def: encode.DefaultTopic, pattern: `.`, rule: "a template such as " + encode.DefaultTopic,
			doc: "Template of the topic name, or the name of another destination of the broker, with `${id}`, `${key}`, `${route}`, `${type}`, or `${column}` for any other column. `$$` is a dollar sign.",
		},
		{
			path: "outbox.topic_rules", at: &c.Outbox.TopicRules, example: `[{match: 'outbox\.event\.(.*)', replace: 'eu.$1.events'}]`,
			doc: "Rules that rewrite the topic name, applied in order, each `{match, replace}`. If the regular expression matches the whole name, the first match is replaced;" +
				" otherwise the name stays. The syntax is Java's. In an environment variable: JSON.",
		},
		{
			path: "outbox.tombstone_on_empty", at: &c.Outbox.TombstoneOnEmpty, def: false,
			doc: "Also send a tombstone for a payload that has only blanks and control characters. An empty `bytea` is not a tombstone.",
		},
		{
			path: "outbox.place", at: &c.Outbox.Place, example: "[{column: tenant, to: header, as: tenant-id}]",
			doc: "More columns for the record, each `{column, to, as}`. `to` is `header`, `envelope` or `partition`; `as` is the name of the header or member (default: the column's)." +
				" With `envelope`, the value is an object with `payload` and these columns. In an environment variable: JSON.",
		},
		{
			path: "outbox.on_missing_column", at: &c.Outbox.OnMissingColumn, def: string(encode.MissingError), allowed: names(encode.Missings()),
			doc: "What to do if a table lacks a column of `outbox.place`: stop with exit code 13, or send records without it.",
		},
		{
			path: "outbox.on_update", at: &c.Outbox.OnUpdate, def: string(encode.UpdateStop), allowed: names(encode.UpdatePolicies()),
			doc: "What to do with an UPDATE of an outbox row: `stop` with exit code 13, or drop it without a log line (`ignore`), with a warning (`warn`) or with an error (`error`)." +
				" Unless the relay stops, it sends an UPDATE of the primary key as a new event.",
		},

		{
			path: "outbox.encoding",
			doc:  "Encoding of values. `raw`: the text or bytes of the column. The others are those of Kafka Connect's converters for a Debezium connector.",
		},
		{
			path: "outbox.encoding.key", at: &c.Outbox.Encoding.Key, def: raw, allowed: names(encode.EncodingsOfValue()),
			doc: "Encoding of the key. `string` is StringConverter, `bytes` is ByteArrayConverter, `json` and `json-schema` are JsonConverter without and with schemas.",
		},
		{
			path: "outbox.encoding.value", at: &c.Outbox.Encoding.Value, def: raw, allowed: names(encode.EncodingsOfValue()),
			doc: "Encoding of the value. An envelope needs `json` or `json-schema`.",
		},
		{
			path: "outbox.encoding.headers", at: &c.Outbox.Encoding.Headers, def: raw, allowed: names(encode.EncodingsOfHeaders()),
			doc: "Encoding of headers. `simple` is SimpleHeaderConverter.",
		},

		{path: "headers", doc: "Optional headers."},
		{
			path: "headers.lsn", at: &c.Headers.LSN, def: true,
			doc: "Add the header `lsn`: the commit LSN of the row and its index in the transaction, such as `0/1A2B3C8:7`.",
		},
		{
			path: "headers.static", at: &c.Headers.Static, pattern: `^[^=]+=`, rule: "name=value", example: "[source=shop-db]",
			doc: "Headers to add to every record, after all others.",
		},
	}
}

// debeziumKeys are the keys that `import debezium` writes, for records that must equal those of Debezium.
func (c *Config) debeziumKeys() []key {
	return []key{
		{path: "debezium", doc: "Settings for records that must equal those of Debezium byte for byte. `import debezium` writes them."},
		{
			path: "debezium.name", at: &c.Debezium.Name, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'", example: "shop",
			doc: "The connector's `topic.prefix`, which context headers and schema names contain. Default: `name`.",
		},
		{
			path: "debezium.context_headers", at: &c.Debezium.ContextHeaders, def: false,
			doc: "Add the headers `__debezium.context.…`, and `__debezium.oldkey` if the primary key of a row has changed.",
		},
		{path: "debezium.decimals", at: &c.Debezium.Decimals, def: "precise", allowed: []string{"precise", "double", "string"}, doc: "`decimal.handling.mode`."},
		{
			path: "debezium.times", at: &c.Debezium.Times, def: "adaptive", doc: "`time.precision.mode`.",
			allowed: []string{"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"},
		},
		{path: "debezium.intervals", at: &c.Debezium.Intervals, def: "numeric", allowed: []string{"numeric", "string"}, doc: "`interval.handling.mode`."},
		{path: "debezium.hstore", at: &c.Debezium.HStore, def: "json", allowed: []string{"json", "map"}, doc: "`hstore.handling.mode`."},
		{
			path: "debezium.binary", at: &c.Debezium.Binary, def: "bytes", allowed: []string{"bytes", "base64", "base64-url-safe", "hex"},
			doc: "`binary.handling.mode`.",
		},
		{
			path: "debezium.key_delegate", at: &c.Debezium.KeyDelegate, allowed: names(encode.EncodingsOfDelegates()),
			doc: "With `outbox.encoding.key: bytes`: the encoding of a key that is not `bytea` (`delegate.converter.type` of BinaryDataConverter). Default: only `bytea` is allowed.",
		},
		{
			path: "debezium.value_delegate", at: &c.Debezium.ValueDelegate, allowed: names(encode.EncodingsOfDelegates()),
			doc: "The same for a value that is not `bytea`, with `outbox.encoding.value: bytes`.",
		},
		{path: "debezium.money_digits", at: &c.Debezium.MoneyDigits, def: 2, doc: "`money.fraction.digits`."},
		{
			path: "debezium.field_names", at: &c.Debezium.FieldNames, def: "none", allowed: []string{"none", "avro", "avro_unicode"},
			doc: "`field.name.adjustment.mode`, for the members of an expanded payload.",
		},
		{
			path: "debezium.expand_payload", at: &c.Debezium.ExpandPayload, def: false,
			doc: "`table.expand.json.payload`: send a JSON payload as a document, not as a string.",
		},
		{path: "debezium.expand_nulls", at: &c.Debezium.ExpandNulls, def: false, doc: "Keep null members of the expanded payload (`table.json.payload.null.behavior: optional_bytes`)."},
		{
			path: "debezium.expand_empty_arrays", at: &c.Debezium.ExpandEmptyArrays, def: false,
			doc: "Keep empty arrays of the expanded payload (`table.json.payload.empty.array.behavior: optional_string`).",
		},
		{
			path: "debezium.exact", at: &c.Debezium.Exact, def: false,
			doc: "Treat a row whose values Debezium would damage as a bad record. By default the record has the correct value.",
		},
	}
}

// names returns words as strings.
func names[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}
