package config

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/connector"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
)

// A kind is the type of a key's value.
type kind int

const (
	section    kind = iota // holds other keys
	text                   // string
	choice                 // string, one of key.allowed
	secret                 // Secret
	conninfo               // Secret: a libpq connection string
	boolean                // bool
	integer                // int, at least key.min
	duration               // time.Duration, above zero
	list                   // []string
	placements             // []route.Placement
)

// A key is one entry of the configuration.
type key struct {
	path    string
	kind    kind
	def     any      // the default, of the kind's Go type; nil: none
	allowed []string // of a choice
	min     int      // of an integer
	pattern string   // of a text, or of a list's items; empty: anything
	rule    string   // pattern in words
	needed  bool     // by the relay
	flag    string   // short flag; empty: only --set
	usage   string   // of the flag, with the value's name in backquotes
	doc     string   // Markdown, one line
	example string   // as written in YAML
}

// env returns the name of the variable that sets k.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

const envPrefix = "OUTBOX_CDC_"

// keys returns the whole configuration, in the order it is documented and printed. A section
// comes before the keys in it.
func keys() []key {
	return slices.Concat(sourceKeys(), outboxKeys(), kafkaKeys(), kafkaTLSKeys(), kafkaLoginKeys(), processKeys())
}

func sourceKeys() []key {
	return []key{
		{
			path: "name", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'", example: "orders",
			doc: "Name of this relay in logs and as Kafka client id. Default: the slot's name.",
		},

		{path: "source", kind: section, doc: "The Postgres database that is read."},
		{
			path: "source.dsn", kind: conninfo, flag: "dsn", usage: "Postgres to read: a libpq `conninfo`", example: "postgres://cdc@db.example.com/app",
			doc: "Connection string in either of libpq's forms; `PG*` variables, service and password files work, also without it. TLS is `verify-full`" +
				" unless an `sslmode` is given or the host is this machine.",
		},
		{path: "source.dsn_file", kind: text, example: "/run/secrets/dsn", doc: "File that holds the connection string. User and password are read again for each connection."},
		{
			path: "source.publication", kind: text, needed: true, flag: "publication", usage: "publication's `name`", example: "outbox_cdc",
			pattern: `^[^\x00]{1,63}$`, rule: "a name of 1 to 63 characters", doc: "Publication the outbox tables are in.",
		},
		{
			path: "source.slot", kind: text, needed: true, flag: "slot", usage: "replication slot's `name`", example: "outbox_cdc",
			pattern: `^[a-z0-9_]{1,63}$`, rule: "1 to 63 of a-z, 0-9 and _", doc: "Logical replication slot; one per relay.",
		},
		{
			path: "source.create", kind: boolean, def: true,
			doc: "Create publication and slot when neither exists yet. A slot that is lost later is never created again.",
		},
		{
			path: "source.wait_for_slot", kind: boolean, def: true,
			doc: "Wait, as a standby, while another process uses the slot; otherwise end with exit code 12.",
		},
	}
}

func outboxKeys() []key {
	columns := route.DefaultColumns()
	return []key{
		{path: "outbox", kind: section, doc: "How rows become records."},
		{
			path: "outbox.tables", kind: list, flag: "table", usage: "outbox `table`; may be repeated", def: []string{"outbox"}, pattern: `^[^\x00]*[^\s\x00][^\x00]*$`, rule: "a table's name", example: "[public.outbox]",
			doc: "Tables of the publication, where it is created.",
		},
		{path: "outbox.columns", kind: section, doc: "Names of the columns. The defaults are those of Debezium's outbox event router."},
		{path: "outbox.columns.id", kind: text, def: columns.ID, pattern: `.`, rule: "a column's name", doc: "The event's id: header `id`. Not NULL."},
		{path: "outbox.columns.key", kind: text, def: columns.Key, pattern: `.`, rule: "a column's name", doc: "The record's key."},
		{path: "outbox.columns.route", kind: text, def: columns.Route, pattern: `.`, rule: "a column's name", doc: "What `${route}` stands for in `outbox.topic`."},
		{path: "outbox.columns.type", kind: text, def: columns.Type, doc: "The event's type: header `eventType`. Empty: no such header."},
		{path: "outbox.columns.payload", kind: text, def: columns.Payload, pattern: `.`, rule: "a column's name", doc: "The record's value. SQL NULL is a tombstone."},
		{
			path: "outbox.columns.headers", kind: text, def: columns.Headers,
			doc: "A JSON object whose members become headers. A table may lack the column of the default name. Empty: none.",
		},
		{
			path: "outbox.topic", kind: text, def: route.DefaultTopic, pattern: `.`, rule: "a template such as " + route.DefaultTopic,
			doc: "Template of the topic's name: `${id}`, `${key}`, `${route}`, `${type}`, or `${column}` for any other column; `$$` is a dollar sign.",
		},
		{path: "outbox.tombstone_on_empty", kind: boolean, def: false, doc: "An empty payload, too, is a tombstone."},
		{
			path: "outbox.place", kind: placements, example: "[{column: tenant, to: header, as: tenant-id}]",
			doc: "Further columns of the record, each `{column, to, as}` with `to` one of `header` and `partition`, and `as` the header's name." +
				" In a variable: as JSON.",
		},

		{path: "headers", kind: section, doc: "Optional headers."},
		{
			path: "headers.position", kind: boolean, def: false,
			doc: "Add `outbox_lsn`, `outbox_index` and `outbox_committed_at`: the commit's position, the row's index in it, and its time.",
		},
	}
}

func kafkaKeys() []key {
	return []key{
		{path: "sink", kind: section, doc: "Where records go."},
		{path: "sink.kafka", kind: section, doc: "A Kafka cluster."},
		{
			path: "sink.kafka.brokers", kind: list, needed: true, flag: "brokers", usage: "Kafka brokers, `host:port` separated by commas", example: "[localhost:9092]",
			pattern: `^(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):[0-9]{1,5}$`, rule: "host:port",
			doc: "Brokers to begin with; the others are found through them.",
		},
		{
			path: "sink.kafka.client_id", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'",
			doc: "Client id shown to the brokers. Default: `name`.",
		},
		{path: "sink.kafka.compression", kind: choice, def: "none", allowed: []string{"none", "gzip", "snappy", "lz4", "zstd"}, doc: "Compression of batches."},
		{
			path: "sink.kafka.partitioner", kind: choice, def: "murmur2", allowed: []string{"murmur2", "fnv1a", "crc32"},
			doc: "Hash of the key that selects the partition: `murmur2` as Java clients do, `fnv1a` as sarama, `crc32` as librdkafka.",
		},
		{path: "sink.kafka.create_topics", kind: section, doc: "Creation of missing topics. By default they must exist."},
		{
			path: "sink.kafka.create_topics.partitions", kind: integer, min: -1, example: "12",
			doc: "Create missing topics with so many partitions; -1 leaves it to the broker. Default: they are not created.",
		},
		{
			path: "sink.kafka.create_topics.replication_factor", kind: integer, min: -1, def: -1,
			doc: "Replication factor of created topics; -1 leaves it to the broker.",
		},
		{path: "sink.kafka.connections_per_broker", kind: integer, min: 1, def: 2, doc: "Connections to each broker, which works on one request of each at a time; a partition stays on one of them."},
		{path: "sink.kafka.window", kind: section, doc: "Bound on what is under way."},
		{path: "sink.kafka.window.bytes", kind: integer, min: 1, def: 6 << 20, doc: "Bytes sent and not yet acknowledged, at most: the memory that is used, whatever happens."},
		{path: "sink.kafka.window.records", kind: integer, min: 1, def: 50_000, doc: "Records sent and not yet acknowledged, at most."},
	}
}

// Values of on_bad_record.
const (
	stop       = "stop"
	deadLetter = "dead-letter"
)

func processKeys() []key {
	return []key{
		{
			path: "on_bad_record", kind: choice, def: stop, allowed: []string{stop, deadLetter},
			doc: "What to do with a row or record that cannot be delivered: `stop` with exit code 14, or send it to `dead_letter_topic` and go on.",
		},
		{
			path: "dead_letter_topic", kind: text, def: "outbox.dead-letter", pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "a topic's name",
			doc: "Where `on_bad_record: dead-letter` sends. Its `max.message.bytes` should exceed that of the other topics.",
		},
		{
			path: "position_topic", kind: text, def: connector.PositionTopic, pattern: `^[A-Za-z0-9._-]{0,249}$`, rule: "a topic's name, or nothing",
			doc: "Compacted topic that keeps the position under `name`, so that a slot that was moved, made anew or restored is noticed." +
				" Created if missing. Empty: not kept.",
		},
		{
			path: "startup_timeout", kind: duration, def: 30 * time.Second,
			doc: "How long the first contact with both sides may take for what heals by itself, such as a server that is starting.",
		},
		{
			path: "drain_timeout", kind: duration, def: 25 * time.Second,
			doc: "How long a stop may take until everything sent is acknowledged. Less than half of the server's `wal_sender_timeout`.",
		},
		{path: "log", kind: section, doc: "Logging, to standard error."},
		{path: "log.level", kind: choice, def: "info", allowed: []string{"debug", "info", "warn", "error"}, doc: "Least level that is logged."},
		{path: "log.format", kind: choice, def: "auto", allowed: []string{"auto", "text", "json"}, doc: "`auto` is text on a terminal, JSON elsewhere."},
	}
}

// A Flag is a short flag for one key.
type Flag struct {
	Name, Key string
	Usage     string // with the value's name in backquotes
	List      bool   // may be repeated
}

// Flags returns the short flags of the keys most often given on the command line.
func Flags() []Flag {
	var flags []Flag
	for _, k := range keys() {
		if k.flag != "" {
			flags = append(flags, Flag{Name: k.flag, Key: k.path, List: k.kind == list, Usage: k.usage + " (" + k.path + ")"})
		}
	}
	return flags
}
