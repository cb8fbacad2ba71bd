package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// load loads a configuration from the text of a file. Problems call it c.yaml.
func load(t *testing.T, yaml string, environ []string, flags ...Setting) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Sources{File: "c.yaml", Environ: environ, Flags: flags})
}

func TestLaterSourceWins(t *testing.T) {
	const file = "source: {slot: file}"
	env := []string{"OUTBOX_CDC_SOURCE_SLOT=env", "OUTBOX_CDC_SOURCE_PUBLICATION=", "HOME=/x"}
	flag := Setting{Key: "source.slot", Value: "flag", Flag: "--slot"}
	for _, tt := range []struct {
		name    string
		environ []string
		flags   []Setting
		want    string
		origin  string
	}{
		{"file", nil, nil, "file", "c.yaml:1"},
		{"environment", env, nil, "env", "OUTBOX_CDC_SOURCE_SLOT"},
		{"flag", env, []Setting{flag}, "flag", "--slot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := load(t, file, tt.environ, tt.flags...)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Source.Slot != tt.want || cfg.settings["source.slot"].where != tt.origin {
				t.Errorf("slot = %q from %q, want %q from %q", cfg.Source.Slot, cfg.settings["source.slot"].where, tt.want, tt.origin)
			}
			if cfg.settings["log.level"].where != "default" || cfg.Log.Level != "info" {
				t.Errorf("log.level = %q from %q, want the default", cfg.Log.Level, cfg.settings["log.level"].where)
			}
		})
	}
}

func TestEveryKind(t *testing.T) {
	want := Config{
		Name: "orders",
		Source: Source{
			DSN: "host=localhost dbname=app", Publication: "p", Slot: "s", Create: "none", OnSlotLoss: "stop", WaitForSlot: true, Lease: 8 * time.Second,
			PasswordTimeout: 10 * time.Second, PasswordLifetime: 5 * time.Minute,
		},
		Outbox: Outbox{
			Tables:  []string{"a", "b"},
			Columns: encode.DefaultColumns(),
			Topic:   encode.DefaultTopic,
			Place:   []encode.Placement{{Column: "tenant", To: encode.ToHeader, As: "t"}, {Column: "shard", To: encode.ToPartition}},

			TopicRules:      []encode.TopicRule{{Match: `a\.(.*)`, Replace: "$1"}, {Match: "b"}},
			OnMissingColumn: "ignore", OnUpdate: "stop", Encoding: Encoding{Key: "string", Value: "raw", Headers: "raw"},
		},
		Headers: Headers{LSN: true, Static: []string{"source=shop", "x="}},
		Debezium: Debezium{
			Decimals: "precise", Times: "adaptive", Intervals: "numeric", HStore: "json", Binary: "bytes", MoneyDigits: 3, FieldNames: "none",
		},
		Sink: Sink{Kafka: Kafka{
			Brokers: []string{"a:1", "b:2"}, Compression: "zstd", Partitioner: "murmur2", ConnectionsPerBroker: 3,
			CreateTopics: CreateTopics{ReplicationFactor: -1}, Window: Window{Bytes: 16 << 20, Records: 200_000},
			SASL: SASL{Mechanism: "PLAIN", User: "u", Password: "123"},
		}},
		OnBadRecord: "dead-letter", MaxParkedKeys: 1000, DeadLetterTopic: "outbox.dead-letter", PositionTopic: "outbox-cdc.positions",
		MissingTopicTimeout: time.Minute,
		StartupTimeout:      90 * time.Second, DrainTimeout: 25 * time.Second,
		Log: Log{Level: "info", Format: "auto"}, Admin: Admin{Listen: "127.0.0.1:9187"},
	}
	values := map[string]string{
		"name": "orders", "source.dsn": "host=localhost dbname=app", "source.publication": "p", "source.slot": "s", "source.create": "none",
		"outbox.tables": "a, b", "outbox.place": `[{"column": "tenant", "to": "header", "as": "t"}, {"column": "shard", "to": "partition"}]`,
		"outbox.topic_rules": `[{"match": "a\\.(.*)", "replace": "$1"}, {"match": "b"}]`, "outbox.on_missing_column": "ignore",
		"outbox.encoding.key": "string", "headers.static": "source=shop, x=", "debezium.money_digits": "3",
		"sink.kafka.brokers": "a:1,b:2", "sink.kafka.compression": "zstd", "sink.kafka.connections_per_broker": "3",
		"sink.kafka.sasl.mechanism": "PLAIN", "sink.kafka.sasl.user": "u", "sink.kafka.sasl.password": "123",
		"on_bad_record": "dead-letter", "startup_timeout": "1m30s",
	}
	var environ []string
	var flags []Setting
	for path, value := range values {
		environ = append(environ, key{path: path}.env()+"="+value)
		flags = append(flags, Setting{Key: path, Value: value, Flag: "--set"})
	}
	const file = `
name: orders
source: {dsn: host=localhost dbname=app, publication: p, slot: s, create: none}
outbox:
  tables: [a, b]
  place:
    - {column: tenant, to: header, as: t}
    - &shard {column: shard, to: partition}
  topic_rules:
    - {match: 'a\.(.*)', replace: $1}
    - match: b
  on_missing_column: ignore
  encoding: {key: string}
headers: {static: [source=shop, "x="]}
debezium: {money_digits: 3}
sink:
  kafka:
    brokers: [a:1, "b:2"]
    compression: zstd
    connections_per_broker: 3
    sasl: {mechanism: PLAIN, user: u, password: "123"}
    tls:
on_bad_record: dead-letter
startup_timeout: 1m30s
`
	for _, tt := range []struct {
		name string
		src  func() (*Config, error)
	}{
		{"file", func() (*Config, error) { return load(t, file, nil) }},
		{"environment", func() (*Config, error) { return Load(Sources{Environ: environ}) }},
		{"flags", func() (*Config, error) { return Load(Sources{Flags: flags}) }},
	} {
		cfg, err := tt.src()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := *cfg
		got.Sink = Sink{Kafka: got.Sink.Kafka} // the other kinds have their defaults
		got.fields, got.settings, got.sections, got.files, got.file, got.arguments, got.reloading = nil, nil, nil, nil, "", "", nil
		if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" || !reflect.DeepEqual(want, got) {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestProblems checks the messages that a user reads. Each case lists every reported problem.
func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		name    string
		file    string
		environ []string
		flags   []Setting
		want    []string
	}{
		{
			name: "unknown keys name the nearest known one",
			file: "source:\n  publicaton: x\n  slto: y\nslot: z\nsinks: {kafka: {nothing: 1}}\nkafka: {brokers: []}\n",
			want: []string{
				"c.yaml:2: source.publicaton: unknown key; did you mean source.publication?",
				"c.yaml:3: source.slto: unknown key; did you mean source.slot?",
				"c.yaml:4: slot: unknown key; did you mean source.slot?",
				"c.yaml:5: sinks: unknown key; did you mean sink?",
				"c.yaml:6: kafka: unknown key; did you mean sink.kafka?",
			},
		},
		{
			name: "unknown key of a section that is one of the root",
			file: "source: {drain_timeout: 1m}",
			want: []string{"c.yaml:1: source.drain_timeout: unknown key; did you mean drain_timeout?"},
		},
		{
			name: "unknown key that is near nothing",
			file: "headers: {temperature: 1}",
			want: []string{"c.yaml:1: headers.temperature: unknown key; the nearest key here is static; known keys: lsn, static"},
		},
		{
			name: "unknown key at the root that is near nothing",
			file: "status_interval: soon",
			want: []string{"c.yaml:1: status_interval: unknown key; the nearest key here is startup_timeout; known keys: name, source, outbox, headers, sink, on_bad_record, max_parked_keys, dead_letter_topic, missing_topic_timeout, position_topic, position, startup_timeout, drain_timeout, log, admin, tracing, debezium"},
		},
		{
			name:    "unknown variables, and those that Kubernetes makes",
			environ: []string{"OUTBOX_CDC_SOURCE_DNS=x", "OUTBOX_CDC_WHATEVER=1", "OUTBOX_CDC_SERVICE_HOST=1", "OUTBOX_CDC_PORT=tcp://10.0.0.1:9187", "OUTBOX_CDC_ADMIN_PORT_9187_TCP_ADDR=1"},
			want: []string{
				"OUTBOX_CDC_SOURCE_DNS: unknown variable; did you mean OUTBOX_CDC_SOURCE_DSN?",
				"OUTBOX_CDC_WHATEVER: unknown variable",
			},
		},
		{
			name:  "unknown key of a flag",
			flags: []Setting{{Key: "log.lvel", Value: "x", Flag: "--set log.lvel"}, {Key: "log", Value: "x", Flag: "--set log"}, {Key: "source.startup_timeout", Value: "5m", Flag: "--set source.startup_timeout"}},
			want: []string{
				"--set log.lvel: unknown key; did you mean log.level?", "--set log: is a section; set one of its keys: level, format",
				"--set source.startup_timeout: unknown key; did you mean startup_timeout?",
			},
		},
		{
			name: "wrong types",
			file: "name: 12\nsource: [a]\noutbox:\n  tables: outbox\n  tombstone_on_empty: yes\n  place: {column: a}\n" +
				"sink:\n  kafka:\n    brokers: [a:1, b: 2]\n    compression:\n    window: {bytes: 16MiB}\n    sasl: {user: u, mechanism: PLAIN, password: 123}\ndrain_timeout: 25\n",
			want: []string{
				"c.yaml:1: name: found a number; allowed is at most 249 letters, digits, '.', '_' and '-': put it in quotes",
				"c.yaml:2: source: found a list; allowed are keys: dsn, dsn_file, password_command, password_timeout, password_lifetime, rds_iam_region, publication, slot, create, initial_copy, initial_copy_where, slot_failover, lease, on_slot_loss, wait_for_slot",
				"c.yaml:4: outbox.tables: found text; allowed is a list, each item a table name",
				"c.yaml:5: outbox.tombstone_on_empty: found text; allowed is true or false",
				"c.yaml:6: outbox.place: found a mapping; allowed is a list of {column, to, as}",
				"c.yaml:9: sink.kafka.brokers: found a mapping as item 2; allowed is host:port",
				"c.yaml:10: sink.kafka.compression: found nothing; allowed is one of none, gzip, snappy, lz4, zstd",
				"c.yaml:11: sink.kafka.window.bytes: found text; allowed is a whole number, at least 1",
				"c.yaml:12: sink.kafka.sasl.password: found a number; allowed is text: put it in quotes",
				"c.yaml:13: drain_timeout: found a number; allowed is a duration above 0, such as 30s or 1m30s",
			},
		},
		{
			name: "wrong values",
			file: "source: {slot: My-Slot, publication: \"\"}\noutbox: {columns: {id: \"\"}}\n" +
				"sink: {kafka: {brokers: [localhost], compression: gzipp, window: {records: 0}}}\nstartup_timeout: -1s\n",
			environ: []string{"OUTBOX_CDC_SOURCE_CREATE=maybe", "OUTBOX_CDC_OUTBOX_PLACE=tenant"},
			flags:   []Setting{{Key: "sink.kafka.brokers", Value: "a:1,kafka://u:pw@b:1", Flag: "--brokers"}},
			want: []string{
				`c.yaml:1: source.slot: found "My-Slot"; allowed is 1 to 63 of a-z, 0-9 and _`,
				`c.yaml:1: source.publication: found ""; allowed is a name of 1 to 63 characters`,
				`c.yaml:2: outbox.columns.id: found ""; allowed is a column name`,
				`c.yaml:3: sink.kafka.brokers: found "localhost"; allowed is a list, each item host:port`,
				`c.yaml:3: sink.kafka.compression: found "gzipp"; allowed is one of none, gzip, snappy, lz4, zstd`,
				`c.yaml:3: sink.kafka.window.records: found "0"; allowed is a whole number, at least 1`,
				`c.yaml:4: startup_timeout: found "-1s"; allowed is a duration above 0, such as 30s or 1m30s`,
				`OUTBOX_CDC_SOURCE_CREATE: source.create: found "maybe"; allowed is one of all, slot, none`,
				`OUTBOX_CDC_OUTBOX_PLACE: outbox.place: found text; allowed is a list of {column, to, as}`,
				`--brokers: sink.kafka.brokers: found "***"; allowed is a list, each item host:port`,
			},
		},
		{
			name: "keys given twice",
			file: "source: {slot: a}\nname: x\nsource: {slot: b}\nlog:\n  level: info\n  level: debug\n",
			want: []string{"c.yaml:3: source: set twice; first in line 1", "c.yaml:6: log.level: set twice; first in line 5"},
		},
		{
			name: "not YAML",
			file: "source:\n  slot: 'a\n",
			want: []string{"c.yaml:2: not YAML: found unexpected end of stream"},
		},
		{
			name: "an alias that is a password",
			file: "source:\n  dsn: *hunter2\n",
			want: []string{"c.yaml: not YAML: put a value that begins with * or & in quotes"},
		},
		{
			name: "two documents",
			file: "name: a\n---\nname: b\n",
			want: []string{"c.yaml:2: the file has a second YAML document; only one is allowed"},
		},
		{
			name: "placements",
			file: "outbox:\n  place:\n    - {column: a, to: body}\n    - {colum: a, to: header}\n    - x\n",
			want: []string{
				"c.yaml:4: outbox.place[1].colum: unknown key; known keys: column, to, as",
				"c.yaml:5: outbox.place[2]: found text; allowed are keys: column, to, as",
			},
		},
		{
			name: "what route finds",
			file: "outbox:\n  topic: a.${route\n  place:\n    - {column: a, to: body}\n",
			want: []string{
				`c.yaml:4: outbox.place[0].to: "body" is not one of header, envelope, partition`,
				`c.yaml:2: outbox.topic: in "a.${route", $ must start ${column} or be written as $$`,
			},
		},
		{
			name: "placements and encodings that do not go together",
			file: "outbox:\n  columns: {headers: h}\n  place:\n    - {column: a, to: envelope}\n    - {column: b, to: envelope, as: payload}\n  encoding: {headers: json-schema}\ndebezium:\n  expand_payload: true\n",
			want: []string{
				`c.yaml:4: outbox.place[1].as: the envelope already has a member "payload"`,
				`c.yaml:4: outbox.place[0].to: an envelope is a JSON object: encoding.value must be json or json-schema`,
				`c.yaml:8: debezium.expand_payload: has no effect: encoding.value is not json or json-schema`,
				`c.yaml:6: outbox.encoding.headers: the members of a JSON column have no schema: columns.headers must be ""`,
			},
		},
		{
			name: "delegates",
			file: "debezium:\n  key_delegate: raw\n",
			want: []string{`c.yaml:2: debezium.key_delegate: found "raw"; allowed is one of string, json, json-schema`},
		},
		{
			name: "a delegate of nothing",
			file: "outbox:\n  encoding: {value: json}\ndebezium:\n  value_delegate: json\n",
			want: []string{`c.yaml:4: debezium.value_delegate: has no effect: encoding.value is not bytes`},
		},
		{
			name: "rules for topics",
			file: "outbox:\n  topic_rules:\n    - {match: 'a(?=b)', replace: x}\n    - {match: '(a)', replace: $2}\n    - {match: '', repalce: x}\n",
			want: []string{"c.yaml:5: outbox.topic_rules[2].repalce: unknown key; known keys: match, replace"},
		},
		{
			name: "rules that are wrong",
			file: "outbox:\n  topic_rules:\n    - {match: 'a(?=(b))', replace: x}\n    - {match: '(a)', replace: $2}\n    - {match: ''}\n",
			want: []string{
				`c.yaml:3: outbox.topic_rules[0].match: in "a(?=(b))" at offset 4: a capturing group within (?= is not supported; write (?:…)`,
				`c.yaml:3: outbox.topic_rules[1].replace: in "$2" at offset 0: there is no group $2; the groups are: $0, $1`,
				`c.yaml:3: outbox.topic_rules[2].match: a regular expression is needed`,
			},
		},
		{
			name: "what needs the position",
			file: "source: {create: slot, initial_copy: true, on_slot_loss: refill}\nposition_topic: ''\non_bad_record: park\n",
			want: []string{
				"c.yaml:1: source.create: slot needs position_topic, because without it a later start cannot tell whether the slot was lost",
				"c.yaml:1: source.initial_copy: needs position_topic, because without it the next start cannot tell whether the copy was complete",
				"c.yaml:1: source.on_slot_loss: refill needs position_topic, because without it nothing says which rows were delivered",
				"c.yaml:3: on_bad_record: park needs position_topic, where the relay stores which keys are parked",
			},
		},
		{
			name: "refill without a table",
			file: "source: {on_slot_loss: refill}\noutbox: {messages: [m]}\n",
			want: []string{"c.yaml:1: source.on_slot_loss: refill needs a table: the rows of outbox.messages are in the WAL only"},
		},
		{
			name: "topics and headers of the relay's own",
			file: "outbox: {topic: mine, place: [{column: c, to: header, as: dead_letter_topic}]}\nposition_topic: mine\ndead_letter_topic: mine\nheaders: {static: [dead_letter_at=now]}\n",
			want: []string{
				"c.yaml:1: outbox.place[0].as: headers dead_letter_… are those of dead letters",
				"c.yaml:4: headers.static: headers dead_letter_… are those of dead letters",
				`c.yaml:1: outbox.topic: "mine" is one of the relay's own (position_topic, dead_letter_topic)`,
				"c.yaml:2: position_topic: must not be the same topic as dead_letter_topic",
			},
		},
		{
			name: "two places for events",
			file: "source: {create: none, initial_copy: true}\noutbox: {tables: [t], messages: [m]}\n",
			want: []string{
				"c.yaml:1: source.initial_copy: has no effect: source.create is none",
				"c.yaml:2: outbox.messages: set together with outbox.tables; set only one of them",
			},
		},
		{
			name: "condition of no copy",
			file: "source: {initial_copy_where: 'true'}\n",
			want: []string{"c.yaml:1: source.initial_copy_where: has no effect: source.initial_copy is false"},
		},
		{
			name: "prefixes of our own",
			file: "outbox:\n  messages: ['*', outbox-cdc, outbox-cdc-audit]\n",
			want: []string{
				`c.yaml:2: outbox.messages: prefix "outbox-cdc" is reserved for outbox-cdc's own messages; write rows with another prefix`,
			},
		},
		{
			name: "what has no effect",
			file: "sink:\n  kafka:\n    tls: {ca_file: x}\n    sasl:\n      user: u\n      password: p\n    create_topics: {replication_factor: 3}\n",
			want: []string{
				"c.yaml:5: sink.kafka.sasl.user: has no effect: sink.kafka.sasl.mechanism is not set",
				"c.yaml:6: sink.kafka.sasl.password: has no effect: sink.kafka.sasl.mechanism is not set",
				"c.yaml:7: sink.kafka.create_topics.replication_factor: has no effect: sink.kafka.create_topics.partitions is not set",
				"c.yaml:3: sink.kafka.tls.ca_file: has no effect: sink.kafka.tls.enabled is not true",
			},
		},
		{
			name: "a port that is none",
			file: "sink: {kafka: {brokers: [a:1, \"[::1]:65536\"]}}",
			want: []string{`c.yaml:1: sink.kafka.brokers: found "[::1]:65536"; a port is a number from 1 to 65535`},
		},
		{
			name: "the beginning of a key",
			file: "sink: {redis: {}}",
			want: []string{"c.yaml:1: sink.redis: unknown key; the nearest key here is redis_streams; known keys: kafka, jetstream, rabbitmq, redis_streams, sqs, webhook"},
		},
		{
			name: "a port of the admin server that is none",
			file: "admin: {listen: \"127.0.0.1:99999\"}",
			want: []string{`c.yaml:1: admin.listen: found "127.0.0.1:99999"; a port is a number from 0 to 65535`},
		},
		{
			name: "half a login",
			file: "sink: {kafka: {sasl: {mechanism: PLAIN}, tls: {enabled: true, cert_file: x}}}",
			want: []string{
				"c.yaml:1: sink.kafka.sasl.mechanism: requires sink.kafka.sasl.user",
				"c.yaml:1: sink.kafka.sasl.mechanism: requires sink.kafka.sasl.password",
				"c.yaml:1: sink.kafka.tls.cert_file: requires sink.kafka.tls.key_file",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, tt.environ, tt.flags...)
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("error = %v, want problems", err)
			}
			var got []string
			for _, p := range e.problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), "none.yaml: no such file") {
		t.Errorf("error = %v, want one that names the file", err)
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, file := range []string{"", "# nothing\n", "---\n", "~", "source:\n"} {
		if _, err := load(t, file, nil); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// Each field of a Config has one key.
func TestKeys(t *testing.T) {
	var cfg Config
	fields := make(map[any]string) // names, by pointer
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for f, field := range v.Fields() {
			switch {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Struct:
				walk(prefix+f.Name+".", field)
			default:
				fields[field.Addr().Interface()] = prefix + f.Name
			}
		}
	}
	walk("", reflect.ValueOf(&cfg).Elem())

	envs := make(map[string]bool)
	seen := map[string]bool{"": true}
	for _, k := range cfg.declare() {
		envs[k.env()] = true
		parent, _, found := cutLast(k.path)
		if !found {
			parent = ""
		}
		if !seen[parent] {
			t.Errorf("%s comes before its section", k.path)
		}
		seen[k.path] = k.kind == section
		if k.doc == "" || strings.Contains(k.doc, "\n") {
			t.Errorf("%s: doc is not one line", k.path)
		}
		if k.at != nil && fields[k.at] == "" {
			t.Errorf("%s has the field of another key", k.path)
		}
		delete(fields, k.at)
	}
	for _, name := range fields {
		t.Errorf("%s has no key", name)
	}
	if len(envs) != len(keys) || len(seen) != 1+len(keys) {
		t.Errorf("%d variables and %d paths for %d keys", len(envs), len(seen)-1, len(keys))
	}
}

func cutLast(path string) (before, after string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return path, "", false
	}
	return path[:i], path[i+1:], true
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("source: {dsn: 'postgres://u:pw@h/db', slot: s}\nsink: {kafka: {brokers: [a:1]}}"))
	f.Add([]byte("outbox:\n  place:\n    - &a {column: x, to: header}\n    - *a\n"))
	f.Add([]byte("a: &a [*a]\nsource: *a"))
	f.Add([]byte("---\n...\n---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newReader(nil)
		if r.file("c.yaml", data); len(r.problems) > 0 {
			return
		}
		cfg := newConfig(r.settings)
		var out strings.Builder
		if err := cfg.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		again := newReader(nil)
		if again.file("out.yaml", []byte(out.String())); len(again.problems) > 0 {
			t.Fatalf("the printed configuration does not load: %v\n%s", again.problems, out.String())
		}
	})
}

// TestColumnNames: a key of outbox.columns is a name or a list of names. In a variable or flag commas separate them.
func TestColumnNames(t *testing.T) {
	for _, tc := range []struct {
		file, flag string
		want       encode.ColumnNames
		problem    string
	}{
		{file: "outbox: {columns: {payload: body}}", want: encode.ColumnNames{"body"}},
		{file: `outbox: {columns: {payload: "a, b"}}`, want: encode.ColumnNames{"a, b"}},
		{file: "outbox: {columns: {payload: [payload, body]}}", want: encode.ColumnNames{"payload", "body"}},
		{flag: "payload, body", want: encode.ColumnNames{"payload", "body"}},
		{flag: "body", want: encode.ColumnNames{"body"}},
		{file: "outbox: {columns: {payload: []}}", problem: "empty list"},
		{file: `outbox: {columns: {payload: [payload, ""]}}`, problem: "allowed is a column name"},
		{file: "outbox: {columns: {payload: [payload, 1]}}", problem: "item 2"},
		{file: "outbox: {columns: {payload: {a: b}}}", problem: "allowed is a column name"},
		{flag: "payload,", problem: "empty name"},
		{file: "outbox: {columns: {type: \"\"}}", want: encode.ColumnNames{"payload"}},
		{file: `outbox: {columns: {type: [""]}}`, problem: "name"},
	} {
		sources := Sources{File: "c.yaml", Content: []byte(tc.file)}
		if tc.flag != "" {
			sources = Sources{Flags: []Setting{{Key: "outbox.columns.payload", Value: tc.flag, Flag: "--set"}}}
		}
		cfg, err := Load(sources)
		switch {
		case tc.problem != "":
			if err == nil || !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("%+v: %v", tc, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		case !slices.Equal(cfg.Outbox.Columns.Payload, tc.want):
			t.Errorf("%+v: %q", tc, cfg.Outbox.Columns.Payload)
		}
	}
}

// A list in a variable or a flag is written with commas, or as in the file.
func TestListAsText(t *testing.T) {
	for text, want := range map[string][]string{
		"a":                   {"a"},
		"a, b.c":              {"a", "b.c"},
		"[a, b.c]":            {"a", "b.c"},
		`["a, x", 'b']`:       {"a, x", "b"},
		"[::1]:9092":          {"[::1]:9092"},
		"[::1]:1,[::2]":       {"[::1]:1", "[::2]"},
		"[broken":             {"[broken"},
		"[public.outbox]":     {"public.outbox"},
		`["public"."outbox"]`: {`["public"."outbox"]`},
	} {
		if got := splitList(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, sources := range []Sources{
		{Environ: []string{"OUTBOX_CDC_OUTBOX_TABLES=[a, b]"}},
		{Flags: []Setting{{Key: "outbox.tables", Value: "[a, b]", Flag: "--set"}}},
	} {
		if cfg, err := Load(sources); err != nil || !slices.Equal(cfg.Outbox.Tables, []string{"a", "b"}) {
			t.Errorf("%+v: %v, %v", sources, cfg, err)
		}
	}
}
