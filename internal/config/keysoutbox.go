package config

import "github.com/outbox-cdc/outbox-cdc/internal/encode"

var defaultColumns = encode.DefaultColumns()

// raw is the default of the encodings.
const raw = "raw"

var outboxKeys = []key{
	{path: "outbox", kind: section, doc: "How rows become records."},
	{
		path: "outbox.tables", kind: list, flag: "table", usage: "outbox `table`; may be repeated", def: []string{"outbox"}, pattern: `^[^\x00]*[^\s\x00][^\x00]*$`, rule: "a table's name", example: "[public.outbox]",
		doc: "Tables of the publication, where it is created.",
	},
	{
		path: "outbox.messages", kind: list, pattern: `^[^\x00]+$`, rule: "a prefix of messages", example: "[outbox]",
		doc: "In place of tables: prefixes of logical messages (`pg_logical_emit_message`) that hold a row as a JSON object, whose members are the columns. `*` is every prefix except `outbox-cdc` and `outbox-cdc prune`, which are reserved for the program's own messages.",
	},

	{path: "outbox.columns", kind: section, doc: "Names of the columns. The defaults are those of Debezium's outbox event router."},
	{path: "outbox.columns.id", kind: text, def: defaultColumns.ID, pattern: `.`, rule: "a column's name", doc: "The event's id: header `id`. Not NULL."},
	{path: "outbox.columns.key", kind: text, def: defaultColumns.Key, pattern: `.`, rule: "a column's name", doc: "The record's key."},
	{path: "outbox.columns.route", kind: text, def: defaultColumns.Route, pattern: `.`, rule: "a column's name", doc: "What `${route}` stands for in `outbox.topic`."},
	{path: "outbox.columns.type", kind: text, def: defaultColumns.Type, doc: "The event's type: header `eventType`. Empty: no such header."},
	{path: "outbox.columns.payload", kind: text, def: defaultColumns.Payload, pattern: `.`, rule: "a column's name", doc: "The record's value. SQL NULL is a tombstone."},
	{
		path: "outbox.columns.timestamp", kind: text, example: "occurred_at",
		doc: "A `timestamp` or `timestamptz` column that is the record's timestamp; NULL is the commit's time. Default: always the commit's time.",
	},
	{
		path: "outbox.columns.schema_version", kind: text,
		doc: "An integer column: the version of the envelope's schema, with `outbox.encoding.value: json-schema`.",
	},
	{
		path: "outbox.columns.headers", kind: text, def: defaultColumns.Headers,
		doc: "A JSON object whose members become headers. A table may lack the column of the default name. Empty: none.",
	},
	{
		path: "outbox.columns.trace_context", kind: text, example: "tracingspancontext",
		doc: "The trace context of the row's writer, which becomes headers: a `traceparent`, or a JSON object of such headers, or lines of `name=value` as Debezium's libraries write.",
	},

	{
		path: "outbox.topic", kind: text, def: encode.DefaultTopic, pattern: `.`, rule: "a template such as " + encode.DefaultTopic,
		doc: "Template of the topic's name: `${id}`, `${key}`, `${route}`, `${type}`, or `${column}` for any other column; `$$` is a dollar sign.",
	},
	{
		path: "outbox.topic_rules", kind: rules, example: `[{match: 'outbox\.event\.(.*)', replace: 'eu.$1.events'}]`,
		doc: "What the topic's name then goes through, each `{match, replace}`: if the regular expression covers the whole name, its first match is replaced;" +
			" other names stay. Syntax and replacement are Java's. In a variable: as JSON.",
	},
	{
		path: "outbox.tombstone_on_empty", kind: boolean, def: false,
		doc: "A payload of nothing but blanks and control characters, too, is a tombstone. An empty `bytea` is not.",
	},
	{
		path: "outbox.place", kind: placements, example: "[{column: tenant, to: header, as: tenant-id}]",
		doc: "Further columns of the record, each `{column, to, as}` with `to` one of `header`, `envelope` and `partition`, and `as` the header's or member's name." +
			" With an `envelope` the value is an object: `payload`, then these columns. In a variable: as JSON.",
	},
	{
		path: "outbox.on_missing_column", kind: choice, def: string(encode.MissingError), allowed: names(encode.Missings()),
		doc: "What to do where a table lacks a column of `outbox.place`: refuse it with exit code 13, or make records without it.",
	},
	{
		path: "outbox.on_update", kind: choice, def: string(encode.UpdateStop), allowed: names(encode.UpdatePolicies()),
		doc: "What to do with an UPDATE of an outbox row: stop with exit code 13, or drop it in silence, with a warning or with an error in the log." +
			" Unless it stops, an UPDATE of the primary key is an event anew.",
	},

	{
		path: "outbox.encoding", kind: section,
		doc: "What becomes of values. `raw`: the column's own bytes. The others are those of Kafka Connect's converters, of a Debezium connector's columns.",
	},
	{
		path: "outbox.encoding.key", kind: choice, def: raw, allowed: names(encode.EncodingsOfValue()),
		doc: "How the key is written. `string` and `bytes` as StringConverter and ByteArrayConverter do, `json` and `json-schema` as JsonConverter without and with schemas.",
	},
	{
		path: "outbox.encoding.value", kind: choice, def: raw, allowed: names(encode.EncodingsOfValue()),
		doc: "How the value is written. An envelope needs `json` or `json-schema`.",
	},
	{
		path: "outbox.encoding.headers", kind: choice, def: raw, allowed: names(encode.EncodingsOfHeaders()),
		doc: "How headers are written; `simple` as SimpleHeaderConverter does.",
	},

	{path: "headers", kind: section, doc: "Optional headers."},
	{
		path: "headers.position", kind: boolean, def: false,
		doc: "Add `outbox_lsn`, `outbox_index` and `outbox_committed_at`: the commit's position, the row's index in it, and its time.",
	},
	{
		path: "headers.static", kind: list, pattern: `^[^=]+=`, rule: "name=value", example: "[source=shop-db]",
		doc: "Headers that every record has, behind all others.",
	},
}

// debeziumKeys are what `import debezium` writes, for records that must be those of Debezium.
var debeziumKeys = []key{
	{path: "debezium", kind: section, doc: "What only records that must be byte for byte those of Debezium need. `import debezium` writes it."},
	{
		path: "debezium.name", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'", example: "shop",
		doc: "The connector's `topic.prefix`, in context headers and names of schemas. Default: `name`.",
	},
	{
		path: "debezium.context_headers", kind: boolean, def: false,
		doc: "Add the headers `__debezium.context.…`, and of a row whose primary key has changed `__debezium.oldkey`.",
	},
	{path: "debezium.decimals", kind: choice, def: "precise", allowed: []string{"precise", "double", "string"}, doc: "`decimal.handling.mode`."},
	{
		path: "debezium.times", kind: choice, def: "adaptive", doc: "`time.precision.mode`.",
		allowed: []string{"adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"},
	},
	{path: "debezium.intervals", kind: choice, def: "numeric", allowed: []string{"numeric", "string"}, doc: "`interval.handling.mode`."},
	{path: "debezium.hstore", kind: choice, def: "json", allowed: []string{"json", "map"}, doc: "`hstore.handling.mode`."},
	{
		path: "debezium.binary", kind: choice, def: "bytes", allowed: []string{"bytes", "base64", "base64-url-safe", "hex"},
		doc: "`binary.handling.mode`.",
	},
	{path: "debezium.money_digits", kind: integer, def: 2, doc: "`money.fraction.digits`."},
	{
		path: "debezium.field_names", kind: choice, def: "none", allowed: []string{"none", "avro", "avro_unicode"},
		doc: "`field.name.adjustment.mode`, of the members of an expanded payload.",
	},
	{
		path: "debezium.expand_payload", kind: boolean, def: false,
		doc: "`table.expand.json.payload`: a payload that is a JSON document is that document and no string.",
	},
	{path: "debezium.expand_nulls", kind: boolean, def: false, doc: "Keep its null members (`table.json.payload.null.behavior: optional_bytes`)."},
	{
		path: "debezium.expand_empty_arrays", kind: boolean, def: false,
		doc: "Keep its empty arrays (`table.json.payload.empty.array.behavior: optional_string`).",
	},
	{
		path: "debezium.exact", kind: boolean, def: false,
		doc: "Refuse, as bad records, rows whose values Debezium damages. By default they have the values that were meant.",
	},
}

// names returns words as strings.
func names[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}
