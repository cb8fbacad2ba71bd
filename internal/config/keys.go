package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
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
	integer                // int, at least key.min and at most key.max
	duration               // time.Duration, above zero
	list                   // []string
	placements             // []encode.Placement
	rules                  // []encode.TopicRule
)

// A key is one entry of the configuration.
type key struct {
	path    string
	kind    kind
	def     any      // the default, of the kind's Go type; nil: none
	allowed []string // of a choice
	min     int      // of an integer
	max     int      // of an integer; 0: none
	pattern string   // of a text, or of a list's items; empty: anything
	rule    string   // pattern in words
	expands bool     // in the file ${NAME} is a variable, as it is in secrets and connection strings
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

// keyAt returns the key, which may be a section, at path.
func keyAt(path string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.path == path })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// paths returns those of all keys.
func paths() []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.path)
	}
	return out
}

// childrenOf returns the names directly under path; those at the top for "".
func childrenOf(path string) []string {
	var out []string
	for _, k := range keys {
		if name, ok := strings.CutPrefix("."+k.path, strings.TrimSuffix("."+path, ".")+"."); ok && !strings.Contains(name, ".") {
			out = append(out, name)
		}
	}
	return out
}

// keys are the whole configuration, in the order it is documented and printed. A section
// comes before the keys in it.
var keys = slices.Concat(sourceKeys, outboxKeys, kafkaKeys, processKeys, tracingKeys, debeziumKeys)

var sourceKeys = []key{
	{
		path: "name", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'", example: "orders",
		doc: "Name of this relay in logs and metrics, as Kafka client id, and of its record in `position_topic`. Relays that share `position_topic` need different names. Default: the slot's name.",
	},

	{path: "source", kind: section, doc: "The Postgres database that is read."},
	{
		path: "source.dsn", kind: conninfo, flag: "dsn", usage: "Postgres to read: a libpq `conninfo`", example: "postgres://cdc@db.example.com/app",
		doc: "Connection string in either of libpq's forms; `PG*` variables, service and password files work, also without it. TLS is `verify-full`" +
			" unless an `sslmode` is given or the host is this machine. In the file, `${NAME}` is that environment variable: here, and in `user`, `client_id` and secrets of `sink.kafka.sasl`.",
	},
	{path: "source.dsn_file", kind: text, example: "/run/secrets/dsn", doc: "File that holds the connection string. User and password are read again for each connection."},
	{
		path: "source.publication", kind: text, def: DefaultPublication, flag: "publication", usage: "`name` of the publication", example: "shop_outbox",
		pattern: `^[^\x00]{1,63}$`, rule: "a name of 1 to 63 characters", doc: "Publication that contains the outbox tables.",
	},
	{
		path: "source.slot", kind: text, def: DefaultSlot, flag: "slot", usage: "`name` of the replication slot", example: "shop_outbox",
		pattern: `^[a-z0-9_]{1,63}$`, rule: "1 to 63 of a-z, 0-9 and _",
		doc: "Logical replication slot of this relay. A second relay with the same slot waits as a standby, so the default is safe." +
			" If relays of several databases use one Kafka cluster, give each its own slot or `name`.",
	},
	{
		path: "source.create", kind: boolean, def: true,
		doc: "Create publication and slot when neither exists yet. A slot that is lost later is never created again.",
	},
	{
		path: "source.create_slot", kind: boolean, def: false,
		doc: "Create the slot also where the publication exists, on a first start: one for which `position_topic` has no position.",
	},
	{
		path: "source.initial_copy", kind: boolean, def: false,
		doc: "With the slot that `create` or `create_slot` makes, first send the rows that are in the tables by then.",
	},
	{
		path: "source.slot_failover", kind: boolean, def: false,
		doc: "Create the slot so that standbys keep a copy of it and it survives a failover (Postgres 17 or later).",
	},
	{
		path: "source.lease", kind: duration, def: 8 * time.Second,
		doc: "How long Postgres keeps the slot for a relay that it hears nothing from, so that another one can take over: `wal_sender_timeout` of the relay's own session. At least 2s; a server that has less keeps its own.",
	},
	{
		path: "source.wait_for_slot", kind: boolean, def: true,
		doc: "Wait, as a standby, while another process uses the slot; otherwise end with exit code 12.",
	},
}

// Defaults of source.publication and source.slot.
const (
	DefaultPublication = "outbox_cdc"
	DefaultSlot        = "outbox_cdc"
)

// Values of on_bad_record.
const (
	stop       = "stop"
	deadLetter = "dead-letter"
)

var processKeys = []key{
	{
		path: "on_bad_record", kind: choice, def: stop, allowed: []string{stop, deadLetter},
		doc: "What to do with a row or record that cannot be delivered: `stop` with exit code 14, or send it to `dead_letter_topic` and go on.",
	},
	{
		path: "dead_letter_topic", kind: text, def: "outbox.dead-letter", pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "a topic's name",
		doc: "Where `on_bad_record: dead-letter` sends. Its `max.message.bytes` should exceed that of the other topics: of what is larger it gets only what names the row.",
	},
	{
		path: "missing_topic_timeout", kind: duration, def: time.Minute,
		doc: "With `on_bad_record: dead-letter`, how long a row waits for a topic that it chooses and that does not exist or may not be written, before it is a bad row." +
			" Rows wait less long if they would hold up others or a stop. A fixed `outbox.topic` is waited for without limit.",
	},
	{
		path: "position_topic", kind: text, def: relay.PositionTopic, pattern: `^[A-Za-z0-9._-]{0,249}$`, rule: "a topic's name, or nothing",
		doc: "Compacted topic that keeps the position under `name`, so that the relay detects a slot that was advanced, re-created or restored, and the broker can reject an older relay." +
			" Created if missing. Empty: not kept, and only the relay's own fence bounds an overlap of two relays.",
	},
	{
		path: "startup_timeout", kind: duration, def: 30 * time.Second,
		doc: "How long the first contact with both sides may take for what heals by itself, such as a server that is starting.",
	},
	{
		path: "drain_timeout", kind: duration, def: 25 * time.Second,
		doc: "How long a stop may take until everything sent is acknowledged.",
	},
	{path: "log", kind: section, doc: "Logging, to standard error."},
	{path: "log.level", kind: choice, def: "info", allowed: []string{"debug", "info", "warn", "error"}, doc: "Least level that is logged. SIGHUP loads it again."},
	{path: "log.format", kind: choice, def: "auto", allowed: []string{"auto", "text", "json"}, doc: "`auto` is text on a terminal, JSON elsewhere."},

	{path: "admin", kind: section, doc: "The admin server: metrics, probes, status and a live page."},
	{
		path: "admin.listen", kind: text, def: "127.0.0.1:9187", pattern: `^(([^\s:/]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})?$`, rule: "host:port, :port, or nothing",
		doc: "Address it listens on, without TLS or login. Empty: no admin server. A port of the default that is taken is no error, but a warning.",
	},
	{
		path: "admin.hosts", kind: list, pattern: `^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`, rule: "a host's name, without scheme and port", example: "[relay.example.com]",
		doc: "Names by which it may be asked. It always answers to addresses, `localhost` and the name in `listen`; to any other name with 403, so that no web page can have a browser read it (DNS rebinding).",
	},
}

var tracingKeys = []key{
	{path: "tracing", kind: section, doc: "Spans of records whose row has a sampled trace context. The context itself is passed on in any case."},
	{
		path: "tracing.endpoint", kind: text, expands: true, pattern: `^https?://[^\s/@?#]+(/[^\s@?#]*)?$`, rule: "a URL that begins with https:// or http://", example: "http://otel-collector:4318",
		doc: "Receiver of spans: OTLP over HTTP, in binary protobuf. A path of `/v1/traces` is added where there is none. In the file, `${NAME}` is that environment variable. Default: no spans.",
	},
	{path: "tracing.headers", kind: secret, doc: "Headers of each request, such as a key: `name=value,name=value`, values percent-encoded, as in `OTEL_EXPORTER_OTLP_HEADERS`."},
	{path: "tracing.headers_file", kind: text, example: "/run/secrets/otlp-headers", doc: "File that holds the headers. It is read again for each request."},
	{
		path: "tracing.resource", kind: list, pattern: `^[^=\s]+=`, rule: "name=value", example: "[deployment.environment.name=production]",
		doc: "Attributes of the resource, beside `service.name`, which is `name`, and `service.version`.",
	},
	{path: "tracing.message_key", kind: boolean, def: false, doc: "Show record keys in spans, as `messaging.kafka.message.key`."},
	{path: "tracing.tls", kind: section, doc: "Encryption, where `tracing.endpoint` begins with `https`."},
	{path: "tracing.tls.ca_file", kind: text, example: "/etc/outbox-cdc/otlp-ca.pem", doc: "Certificates to trust (PEM). Default: the system's."},
	{path: "tracing.tls.cert_file", kind: text, doc: "Client certificate (PEM), with `key_file`. Read again for each connection."},
	{path: "tracing.tls.key_file", kind: text, doc: "Key of the client certificate (PEM)."},
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
	for _, k := range keys {
		if k.flag != "" {
			usage := k.usage + " (" + k.path + ")"
			if name, ok := k.def.(string); ok {
				usage += fmt.Sprintf(" (default %q)", name)
			}
			flags = append(flags, Flag{Name: k.flag, Key: k.path, List: k.kind == list, Usage: usage})
		}
	}
	return flags
}
