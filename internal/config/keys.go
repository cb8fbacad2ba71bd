package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
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
	columns                // encode.ColumnNames: a name, or a list of names
	placements             // []encode.Placement
	rules                  // []encode.TopicRule
)

// A key describes one entry of the configuration.
type key struct {
	path    string
	at      any      // pointer to the field; nil: a section
	kind    kind     // declare sets it, except that of a connection string
	def     any      // the default, of the kind's Go type; nil: none
	allowed []string // of a choice
	min     int      // of an integer
	max     int      // of an integer; 0: none
	pattern string   // of a text, or of a list's items; empty: anything
	rule    string   // the pattern in words
	expands bool     // in the file, ${NAME} is an environment variable, as in secrets and connection strings
	needed  bool     // the relay requires it
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

// childrenOf returns the names directly below path; those at the root for "".
func childrenOf(path string) []string {
	var out []string
	for _, k := range keys {
		if name, ok := strings.CutPrefix("."+k.path, strings.TrimSuffix("."+path, ".")+"."); ok && !strings.Contains(name, ".") {
			out = append(out, name)
		}
	}
	return out
}

// keys are all keys. Their fields are those of no Config that is in use.
var keys = new(Config).declare()

// declare returns all keys with fields of c, in the order of the documentation and of the printed configuration. A section
// comes before its keys.
func (c *Config) declare() []key {
	all := slices.Concat(
		c.sourceKeys(), c.outboxKeys(),
		[]key{{path: "sink", doc: "The destination of records: one of these sections."}},
		c.kafkaKeys(),
		c.jetStreamKeys(),
		c.rabbitMQKeys(),
		c.redisKeys(),
		c.sqsKeys(),
		c.webhookKeys(),
		c.processKeys(), c.tracingKeys(), c.debeziumKeys(),
	)
	for i, k := range all {
		if all[i].kind = cmp.Or(k.kind, kinds[reflect.TypeOf(k.at)]); k.allowed != nil {
			all[i].kind = choice
		}
	}
	return all
}

// kinds are the kinds that follow from the type of the field. A text with allowed values is a choice.
var kinds = map[reflect.Type]kind{
	reflect.TypeFor[*string]():             text,
	reflect.TypeFor[*Secret]():             secret,
	reflect.TypeFor[*bool]():               boolean,
	reflect.TypeFor[*int]():                integer,
	reflect.TypeFor[*time.Duration]():      duration,
	reflect.TypeFor[*[]string]():           list,
	reflect.TypeFor[*encode.ColumnNames](): columns,
	reflect.TypeFor[*[]encode.Placement](): placements,
	reflect.TypeFor[*[]encode.TopicRule](): rules,
}

func (c *Config) sourceKeys() []key {
	return []key{
		{
			path: "name", at: &c.Name, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "at most 249 letters, digits, '.', '_' and '-'", example: "orders",
			doc: "Name of this relay in logs and metrics, as client id at the broker, and of its position record. Relays that share `position_topic` need different names, and a relay and its standby the same one. Default: the slot's name.",
		},

		{path: "source", doc: "The Postgres database with the outbox."},
		{
			path: "source.dsn", at: &c.Source.DSN, kind: conninfo, flag: "dsn", usage: "Postgres connection string: a libpq `conninfo`", example: "postgres://cdc@db.example.com/app",
			doc: "Connection string, as a URL or as libpq's `key=value` pairs. `PG*` variables, service files and password files work too, also without this key. TLS is `verify-full`" +
				" unless you set `sslmode` or the host is this machine. In the file, `${NAME}` is replaced by that environment variable; this also works in user names, `client_id` and secrets below `sink`.",
		},
		{path: "source.dsn_file", at: &c.Source.DSNFile, example: "/run/secrets/dsn", doc: "File with the connection string. The relay reads user and password again for each connection."},
		{
			path: "source.password_command", at: &c.Source.PasswordCommand, pattern: `^[^\x00]+$`, rule: "a word of the command", example: "[gcloud, sql, generate-login-token]",
			doc: "Program and arguments that print the password or a token on one line, for logins whose password expires. It replaces the password of `source.dsn`. See [clouds.md](clouds.md#passwords-that-expire).",
		},
		{
			path: "source.password_timeout", at: &c.Source.PasswordTimeout, def: 10 * time.Second,
			doc: "Time limit of `password_command`. Every login may take so much longer than `connect_timeout`.",
		},
		{
			path: "source.password_lifetime", at: &c.Source.PasswordLifetime, def: 5 * time.Minute,
			doc: "How long a printed password is valid at least. Logins within a minute share one. If the command fails, the last one serves until then.",
		},
		{
			path: "source.rds_iam_region", at: &c.Source.RDSIAMRegion, pattern: `^[a-z0-9-]+$`, rule: "the name of a region", example: "eu-central-1",
			doc: "AWS region of the database: log in with IAM database authentication of Amazon RDS or Aurora. The relay signs a token for the logins. See [clouds.md](clouds.md#iam-authentication-on-rds-and-aurora).",
		},
		{
			path: "source.publication", at: &c.Source.Publication, def: DefaultPublication, flag: "publication", usage: "`name` of the publication", example: "shop_outbox",
			pattern: `^[^\x00]{1,63}$`, rule: "a name of 1 to 63 characters", doc: "Publication that contains the outbox tables.",
		},
		{
			path: "source.slot", at: &c.Source.Slot, def: DefaultSlot, flag: "slot", usage: "`name` of the replication slot", example: "shop_outbox",
			pattern: `^[a-z0-9_]{1,63}$`, rule: "1 to 63 of a-z, 0-9 and _",
			doc: "Logical replication slot of this relay. A second relay with the same slot waits as a standby, so the default is safe." +
				" If relays of several databases use one broker, give each its own slot or `name`.",
		},
		{
			path: "source.create", at: &c.Source.Create, def: string(relay.CreateAll), allowed: names(relay.Creations()),
			doc: "What the first start creates. `all`: the publication and the slot, if neither exists. `slot`: the slot, for a publication that exists. `none`: nothing, because `outbox-cdc setup` has created both." +
				" A start is the first if the relay has no position record. Only `outbox-cdc recover` and `on_slot_loss: refill` create the slot again later.",
		},
		{
			path: "source.initial_copy", at: &c.Source.InitialCopy, def: false,
			doc: "When the first start creates the slot, first send the rows that are already in the tables, in the order of `position` if there is this column. With `create: slot`, `setup` leaves the slot to it.",
		},
		{
			path: "source.initial_copy_where", at: &c.Source.InitialCopyWhere, example: "published_at IS NULL",
			doc: "With `initial_copy`, send only the rows for which this SQL condition holds, in the order of `position` or else of the id. It [replaces a polling relay](replacing-a-poller.md).",
		},
		{
			path: "source.slot_failover", at: &c.Source.SlotFailover, def: false,
			doc: "Create the slot with `FAILOVER`, so that standbys can synchronize it and it survives a failover (Postgres 17 or later).",
		},
		{
			path: "source.lease", at: &c.Source.Lease, def: 8 * time.Second,
			doc: "How long Postgres keeps the slot for a relay that it hears nothing from, so that another one can take over: `wal_sender_timeout` of the relay's own session. At least 2s. A server that has less keeps its own, but at least 1s.",
		},
		{
			path: "source.on_slot_loss", at: &c.Source.OnSlotLoss, def: stop, allowed: []string{stop, refill},
			doc: "What to do if the slot is lost, or does not continue at the position record: `stop` with exit code 11 or 15, or `refill`: create a new slot and send the undelivered rows from the table," +
				" as [`outbox-cdc recover`](recover.md) does.",
		},
		{
			path: "source.wait_for_slot", at: &c.Source.WaitForSlot, def: true,
			doc: "Wait as a standby while another relay uses the slot. If false, exit with 12.",
		},
	}
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
	park       = "park"
)

// refill is the other value of source.on_slot_loss.
const refill = "refill"

func (c *Config) processKeys() []key {
	return []key{
		{
			path: "on_bad_record", at: &c.OnBadRecord, def: stop, allowed: []string{stop, deadLetter, park},
			doc: "What to do with a row or record that cannot be delivered: `stop` with exit code 14; `dead-letter`: send it to `dead_letter_topic` and continue;" +
				" or `park`: send it and every later record of its key there, until you [release the key](park.md). `park` needs Kafka and `position_topic`.",
		},
		{
			path: "max_parked_keys", at: &c.MaxParkedKeys, min: 1, max: parking.MaxKeys, def: parking.MaxKeys,
			doc: "With `on_bad_record: park`, how many keys may be parked. If one more key had to be parked, the relay stops with exit code 14.",
		},
		{
			path: "dead_letter_topic", at: &c.DeadLetterTopic, def: "outbox.dead-letter", pattern: `.`, rule: "the name of a destination",
			doc: "Topic, or another destination of the broker, for dead letters, with `on_bad_record: dead-letter` or `park`. It should accept larger records than the other destinations (Kafka: `max.message.bytes`): the relay truncates a larger dead letter to what identifies the row.",
		},
		{
			path: "missing_topic_timeout", at: &c.MissingTopicTimeout, def: time.Minute,
			doc: "With `on_bad_record: dead-letter` or `park`, how long a row waits for a destination that it chooses and that does not exist or may not be written, before it is a bad row." +
				" Rows wait less long if they would hold up others or a stop. A fixed `outbox.topic` is waited for without limit.",
		},
		{
			path: "position_topic", at: &c.PositionTopic, def: position.DefaultTopic,
			doc: "Where the broker stores the position record, under `name`: a compacted topic of Kafka, or what the [table of brokers](sinks.md) names. With it, the relay detects a slot that was advanced, re-created or restored from a backup, and Kafka can reject an older relay." +
				" The relay creates it if it is missing. Empty: no position record; only the relay's own fence limits duplicates if two relays overlap.",
		},
		{path: "position", doc: "The position record, for a broker that cannot store it."},
		{
			path: "position.file", at: &c.Position.File, example: "/var/lib/outbox-cdc/position",
			doc: "File for the position record, for a broker that cannot store it. All relays of a slot need the same file. Default: no position record.",
		},
		{
			path: "startup_timeout", at: &c.StartupTimeout, def: 30 * time.Second,
			doc: "How long a start waits for Postgres and the broker, for example while a server is starting.",
		},
		{
			path: "drain_timeout", at: &c.DrainTimeout, def: 25 * time.Second,
			doc: "How long a stop waits until the broker has acknowledged the records in flight. If the broker or Postgres does not respond, saving and confirming the last position then takes up to 5 s each.",
		},
		{path: "log", doc: "The log, on standard error."},
		{path: "log.level", at: &c.Log.Level, def: "info", allowed: []string{"debug", "info", "warn", "error"}, doc: "Minimum level to log. SIGHUP reloads it."},
		{path: "log.format", at: &c.Log.Format, def: "auto", allowed: []string{"auto", "text", "json"}, doc: "`auto` is text on a terminal, otherwise JSON."},

		{path: "admin", doc: "The admin server: metrics, probes, status and the live page."},
		{
			path: "admin.listen", at: &c.Admin.Listen, def: "127.0.0.1:9187", pattern: `^(([^\s:/]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})?$`, rule: "host:port, :port, or empty",
			doc: "Address of the admin server. It has no TLS and no login. Empty: no admin server. If the default port is in use, the relay logs a warning and waits for it while it runs.",
		},
		{
			path: "admin.hosts", at: &c.Admin.Hosts, pattern: `^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`, rule: "a host name, without scheme and port", example: "[relay.example.com]",
			doc: "Host names under which the admin server responds, in addition to IP addresses, `localhost` and the name in `listen`. It responds to other names with 403, so that a web page cannot read it through a browser (DNS rebinding).",
		},
	}
}

func (c *Config) tracingKeys() []key {
	return []key{
		{path: "tracing", doc: "Spans for records whose row has a sampled trace context. The relay always passes the context on."},
		{
			path: "tracing.endpoint", at: &c.Tracing.Endpoint, expands: true, pattern: `^https?://[^\s/@?#]+(/[^\s@?#]*)?$`, rule: "a URL that begins with https:// or http://", example: "http://otel-collector:4318",
			doc: "OTLP endpoint for spans, over HTTP with binary protobuf. Without a path, `/v1/traces` is added. In the file, `${NAME}` is replaced by that environment variable. Default: no spans.",
		},
		{path: "tracing.headers", at: &c.Tracing.Headers, doc: "Headers of each request, such as an API key: `name=value,name=value` with percent-encoded values, as in `OTEL_EXPORTER_OTLP_HEADERS`."},
		{path: "tracing.headers_file", at: &c.Tracing.HeadersFile, example: "/run/secrets/otlp-headers", doc: "File with the headers. The relay reads it again for each request."},
		{
			path: "tracing.resource", at: &c.Tracing.Resource, pattern: `^[^=\s]+=`, rule: "name=value", example: "[deployment.environment.name=production]",
			doc: "Resource attributes, in addition to `service.name` (the relay's `name`) and `service.version`.",
		},
		{path: "tracing.message_key", at: &c.Tracing.MessageKey, def: false, doc: "Add record keys to spans, as `messaging.kafka.message.key` (another broker than Kafka: `outbox_cdc.message.key`)."},
		{path: "tracing.tls", doc: "TLS, if `tracing.endpoint` begins with `https`."},
		{path: "tracing.tls.ca_file", at: &c.Tracing.TLS.CAFile, example: "/etc/outbox-cdc/otlp-ca.pem", doc: "CA certificates (PEM). Default: those of the system."},
		{path: "tracing.tls.cert_file", at: &c.Tracing.TLS.CertFile, doc: "Client certificate (PEM), with `key_file`. The relay reads it again for each connection."},
		{path: "tracing.tls.key_file", at: &c.Tracing.TLS.KeyFile, doc: "Key of the client certificate (PEM)."},
	}
}

// A Flag is a command-line flag for one key.
type Flag struct {
	Name, Key string
	Usage     string // with the value's name in backquotes
	List      bool   // may be repeated
}

// Flags returns the flags of the keys that have one.
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
