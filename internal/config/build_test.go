package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/connect"
	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// settings returns flags for alternating keys and values, after the required ones.
func settings(pairs ...string) []Setting {
	pairs = append([]string{
		"source.dsn", "host=localhost user=u dbname=app", "source.publication", "p", "source.slot", "s", "sink.kafka.brokers", "a:9092",
	}, pairs...)
	var out []Setting
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, Setting{Key: pair[0], Value: pair[1], Flag: "--set"})
	}
	return out
}

func TestConnector(t *testing.T) {
	cfg, err := Load(Sources{Flags: settings(
		"sink.kafka.create_topics.partitions", "6", "sink.kafka.sasl.mechanism", "SCRAM-SHA-512",
		"sink.kafka.sasl.user", "u", "sink.kafka.sasl.password", "pw", "source.wait_for_slot", "false", "headers.lsn", "true",
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	gotSink := kafkaOf(t, got)
	if password, err := gotSink.SASL.Secret(t.Context()); password != "pw" || err != nil {
		t.Errorf("password %q: %v", password, err)
	}
	gotSink.SASL.Secret = nil
	wantSink := kafka.Config{
		Brokers: []string{"a:9092"}, ClientID: "s", Compression: "none", Partitioner: "murmur2",
		CreateTopics: &kafka.TopicSpec{Partitions: 6, ReplicationFactor: -1},
		SASL:         &kafka.SASL{Mechanism: "SCRAM-SHA-512", User: "u"},
		WindowBytes:  16 << 20, WindowRecords: 200_000, ConnectionsPerBroker: 2,
	}
	if diff := cmp.Diff(wantSink, gotSink); diff != "" {
		t.Errorf("Sink (-want +got):\n%s", diff)
	}
	if got.Name != "s" || got.Create != relay.CreateAll || !got.FailIfSlotInUse || !got.Route.LSNHeader || got.Source.Conn.Database != "app" ||
		got.DrainTimeout != 25*time.Second || !slices.Equal(got.Tables, []string{"outbox"}) {
		t.Errorf("Relay() = %+v", got)
	}
}

// TestRecords: the configuration of records reaches the router.
func TestRecords(t *testing.T) {
	cfg, err := Load(Sources{Flags: settings(
		"outbox.columns.timestamp", "at", "outbox.columns.schema_version", "v", "outbox.columns.headers", "", "outbox.topic_rules", `[{match: a, replace: b}]`,
		"outbox.on_missing_column", "ignore", "outbox.on_update", "warn", "outbox.messages", "m1,m2", "outbox.tombstone_on_empty", "true",
		"outbox.encoding.key", "bytes", "outbox.encoding.value", "json", "outbox.encoding.headers", "simple", "headers.static", "a=b=c,d=",
		"debezium.name", "shop", "debezium.context_headers", "true", "debezium.decimals", "string", "debezium.times", "connect", "debezium.intervals", "string",
		"debezium.hstore", "map", "debezium.binary", "hex", "debezium.money_digits", "0", "debezium.field_names", "avro", "debezium.expand_payload", "true",
		"debezium.key_delegate", "json", "debezium.expand_nulls", "true", "debezium.expand_empty_arrays", "true", "debezium.exact", "true",
		"source.create", "slot", "source.initial_copy", "true", "source.slot_failover", "true", "sink.kafka.max_message_bytes", "1000",
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	columns := encode.DefaultColumns()
	columns.Timestamp, columns.SchemaVersion, columns.Headers = encode.ColumnNames{"at"}, encode.ColumnNames{"v"}, nil
	want := encode.Config{
		Columns: columns, Names: kafka.Names{}, Topic: encode.DefaultTopic, TopicRules: []encode.TopicRule{{Match: "a", Replace: "b"}}, TombstoneOnEmpty: true,
		Reserved:        []string{"outbox-cdc.positions", "outbox.dead-letter"},
		OnMissingColumn: encode.MissingIgnore, OnUpdate: encode.UpdateWarn,
		Encoding:  encode.Encodings{Key: format.Bytes, Value: format.JSON, Headers: format.Simple},
		LSNHeader: true,
		Static:    []encode.StaticHeader{{Name: "a", Value: "b=c"}, {Name: "d"}},
		Debezium: encode.Debezium{
			Name: "shop", ContextHeaders: true,
			Modes:       connect.Modes{Decimal: "string", Time: "connect", Interval: "string", HStore: "map", Binary: "hex", MoneyDigits: new(0)},
			KeyDelegate: format.JSON, Expand: true, Expansion: connect.Expansion{Nulls: true, EmptyArrays: true, FieldNames: "avro"}, Exact: true,
		},
	}
	if diff := cmp.Diff(want, got.Route); diff != "" {
		t.Errorf("Route (-want +got):\n%s", diff)
	}
	if len(got.Tables) > 0 || !slices.Equal(got.Messages, []string{"m1", "m2"}) || got.Create != relay.CreateSlot || !got.InitialCopy || !got.SlotFailover || kafkaOf(t, got).MaxMessageBytes != 1000 {
		t.Errorf("Relay() = %+v", got)
	}
}

func TestKafkaNeedsBrokers(t *testing.T) {
	cfg, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Kafka(); err == nil || !strings.Contains(err.Error(), "sink.kafka.brokers") {
		t.Errorf("without brokers: %v", err)
	}
	cfg, err = Load(Sources{Flags: []Setting{{Key: "sink.kafka.brokers", Value: "a:1,b:2", Flag: "--brokers"}}})
	if err != nil {
		t.Fatal(err)
	}
	if kafka, err := cfg.Kafka(); err != nil || !slices.Equal(kafka.Brokers, []string{"a:1", "b:2"}) {
		t.Errorf("brokers %v, %v", kafka.Brokers, err)
	}
}

// kafkaOf returns the sink configuration of a relay.
func kafkaOf(t *testing.T, cfg relay.Config) kafka.Config {
	t.Helper()
	k, ok := cfg.Sink.(kafka.Config)
	if !ok {
		t.Fatalf("the sink is a %T", cfg.Sink)
	}
	return k
}

func TestKafkaTLS(t *testing.T) {
	certFile, keyFile := certificate(t, certtest.New(), "relay")
	cfg, err := Load(Sources{Flags: settings(
		"sink.kafka.tls.enabled", "true", "sink.kafka.tls.ca_file", certFile, "sink.kafka.tls.server_name", "kafka",
		"sink.kafka.tls.cert_file", certFile, "sink.kafka.tls.key_file", keyFile,
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kafkaOf(t, got).TLS()
	if err != nil || c.RootCAs == nil || c.InsecureSkipVerify || c.ServerName != "kafka" || len(c.Certificates) != 1 {
		t.Errorf("TLS() = %+v, %v", c, err)
	}

	newCert, newKey := certificate(t, certtest.New(), "another")
	replace(t, certFile, read(t, newCert))
	if c, err := kafkaOf(t, got).TLS(); err == nil || !strings.Contains(err.Error(), "cert_file") || isMistake(err) {
		t.Errorf("with the new certificate and the old key: %+v, %v", c, err)
	}
	replace(t, keyFile, read(t, newKey))
	if next, err := kafkaOf(t, got).TLS(); err != nil || bytes.Equal(next.Certificates[0].Certificate[0], c.Certificates[0].Certificate[0]) || next.RootCAs.Equal(c.RootCAs) {
		t.Errorf("with both: %+v, %v", next, err)
	}

	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"sink.kafka.tls.ca_file", "/nowhere"}, "--set: sink.kafka.tls.ca_file: open /nowhere: no such file or directory"},
		{[]string{"sink.kafka.tls.ca_file", keyFile}, "--set: sink.kafka.tls.ca_file: " + keyFile + " contains no certificate in PEM form"},
		{[]string{"sink.kafka.tls.key_file", keyFile}, "--set: sink.kafka.tls.key_file: requires sink.kafka.tls.cert_file"},
		{[]string{"sink.kafka.tls.cert_file", keyFile, "sink.kafka.tls.key_file", keyFile}, "--set: sink.kafka.tls.cert_file: tls: failed to find"},
	} {
		_, err := Load(Sources{Flags: settings(append(tt.pairs, "sink.kafka.tls.enabled", "true")...)})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v: error = %v, want %s", tt.pairs, err, tt.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	cleanEnviron(t)
	login := func(mechanism string) []string {
		return []string{"sink.kafka.sasl.mechanism", mechanism, "sink.kafka.sasl.user", "u", "sink.kafka.sasl.password", "p"}
	}
	bearer := []string{
		"sink.kafka.sasl.mechanism", "OAUTHBEARER", "sink.kafka.sasl.token_url", "http://idp/token",
		"sink.kafka.sasl.client_id", "c", "sink.kafka.sasl.client_secret", "s",
	}
	const unencrypted = "records to Kafka are not encrypted on the network: set sink.kafka.tls.enabled to true, or to false to accept it"
	for _, tt := range []struct {
		name  string
		pairs []string
		want  []string
	}{
		{"nothing said", nil, []string{unencrypted}},
		{"plain text is meant", []string{"sink.kafka.tls.enabled", "false"}, nil},
		{"brokers of this machine", []string{"sink.kafka.brokers", "localhost:9092,[::1]:9092"}, nil},
		{"TLS", []string{"sink.kafka.tls.enabled", "true"}, nil},
		{"TLS for nothing", []string{"sink.kafka.tls.enabled", "true", "sink.kafka.tls.insecure_skip_verify", "true"}, []string{"the certificates of the Kafka brokers are not verified"}},
		{"password", login("PLAIN"), []string{"the Kafka password is not encrypted on the network"}},
		{"password, and plain text is meant", append(login("PLAIN"), "sink.kafka.tls.enabled", "false"), []string{"the Kafka password is not encrypted on the network"}},
		{"password that is not sent", login("SCRAM-SHA-256"), []string{unencrypted}},
		{"token", bearer, []string{
			"the Kafka token is not encrypted on the network",
			"the client secret is not encrypted on the network: sink.kafka.sasl.token_url is not https",
		}},
		{"Postgres in plain text", []string{"source.dsn", "host=db,localhost sslmode=disable", "sink.kafka.tls.enabled", "true"}, []string{"rows from Postgres at db are not encrypted on the network"}},
		{"Postgres unverified", []string{"source.dsn", "host=db sslmode=require", "sink.kafka.tls.enabled", "true"}, []string{"the certificate of Postgres at db is not verified; set sslmode=verify-full"}},
		{"Postgres verified", []string{"source.dsn", "host=db", "sink.kafka.tls.enabled", "true"}, nil},
		{"no position", []string{"position_topic", "", "sink.kafka.tls.enabled", "true"}, []string{"position_topic is empty: the relay does not detect a slot that was advanced or re-created while it was stopped, and only the relay's own fence limits duplicates if two relays overlap"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := Load(Sources{Flags: settings(tt.pairs...)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, cfg.Warnings()); diff != "" {
				t.Errorf("Warnings() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAdminListen(t *testing.T) {
	cleanEnviron(t)
	for value, warned := range map[string]bool{
		"127.0.0.1:9187": false, "localhost:0": false, "'[::1]:9187'": false, "''": false,
		"':9187'": true, "0.0.0.0:9187": true, "'[::]:9187'": true, "relay.example.com:80": true,
	} {
		cfg, err := load(t, "admin: {listen: "+value+"}", nil)
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if got := strings.Contains(strings.Join(cfg.Warnings(), "\n"), "the admin server at"); got != warned {
			t.Errorf("%s: warned %v", value, got)
		}
		if cfg.ListensByDefault() {
			t.Errorf("%s counts as the default", value)
		}
	}
	for _, value := range []string{"9187", "http://localhost:9187", "localhost", "localhost:port", "a b:1"} {
		if _, err := load(t, "admin: {listen: '"+value+"'}", nil); err == nil {
			t.Errorf("%q was accepted", value)
		}
	}
	for _, value := range []string{"relay.example.com:9187", "http://relay", "'*'", "''", "a b", "[::1]"} {
		if _, err := load(t, "admin: {hosts: ["+value+"]}", nil); err == nil {
			t.Errorf("host %q was accepted", value)
		}
	}
	named, err := load(t, "admin: {listen: 'relay.example.com:80', hosts: [relay, metrics.example.com]}", nil)
	if diff := cmp.Diff([]string{"relay", "metrics.example.com", "relay.example.com"}, named.AdminHosts()); diff != "" || err != nil {
		t.Errorf("%v, hosts (-want +got):\n%s", err, diff)
	}
	cfg, err := load(t, "name: orders", nil)
	if err != nil || cfg.Admin.Listen != "127.0.0.1:9187" || !cfg.ListensByDefault() {
		t.Errorf("by default: %+v, %v", cfg, err)
	}
}

// isMistake reports whether err has the exit code of an invalid configuration.
func isMistake(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// certificate writes a certificate for name, and its key.
func certificate(t *testing.T, by *certtest.Authority, name string) (certFile, keyFile string) {
	t.Helper()
	c := by.Issue(time.Now().Add(time.Hour), name)
	return file(t, "cert.pem", c.Cert), file(t, "key.pem", c.Key)
}

// file writes a file into a new directory.
func file(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	replace(t, path, content)
	return path
}

func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
