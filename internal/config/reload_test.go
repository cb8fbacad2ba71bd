package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// Apply applies the keys that can change at run time, and reports them. It does not apply the others, and no key
// that depends on one of them.
func TestApply(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := certtest.New(), certtest.New()
	started := map[string]string{
		"source.dsn": "postgres://u:one@localhost/app", "source.slot": "s", "source.publication": "p",
		"sink.kafka.brokers":        "localhost:9092",
		"sink.kafka.sasl.mechanism": "PLAIN", "sink.kafka.sasl.user": "relay", "sink.kafka.sasl.password_file": file("password", "kafka-one"),
		"sink.kafka.tls.enabled": "true", "sink.kafka.tls.ca_file": file("ca.pem", string(one.PEM())),
	}
	loaded := func(changes map[string]string) *Config {
		src := Sources{}
		for path, value := range started {
			if changed, ok := changes[path]; ok {
				value = changed
			}
			src.Flags = append(src.Flags, Setting{Key: path, Value: value})
		}
		for path, value := range changes {
			if started[path] == "" {
				src.Flags = append(src.Flags, Setting{Key: path, Value: value})
			}
		}
		cfg, err := Load(src)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := loaded(nil)
	relay, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	password := func() string {
		secret, err := kafkaOf(t, relay).SASL.Secret(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	user := func() string {
		connection := relay.Source.Conn.Copy()
		if _, err := connection.AfterNetConnect(t.Context(), connection, nil); err != nil {
			t.Fatal(err)
		}
		return connection.User + " " + connection.Password
	}
	for _, step := range []struct {
		name             string
		before           func()
		changes          map[string]string
		changed, restart []string
		password, user   string
	}{
		{"nothing", func() {}, nil, nil, nil, "kafka-one", "u one"},
		{"Postgres' password", func() {}, map[string]string{"source.dsn": "postgres://u:two@localhost/app"}, []string{"source.dsn"}, nil, "kafka-one", "u two"},
		{
			"file and level", func() { file("password", "kafka-two"); file("ca.pem", string(two.PEM())) },
			map[string]string{"source.dsn": "postgres://u:two@localhost/app", "log.level": "debug"},
			[]string{atSASL + "password", atTLS + "ca_file", "log.level"},
			nil, "kafka-two", "u two",
		},
		{
			"the level again, and what cannot be", func() { file("password", "kafka-three") },
			map[string]string{"source.dsn": "postgres://v:three@elsewhere/app?sslmode=require", "source.slot": "t", "sink.kafka.sasl.user": "other", "log.level": "debug"},
			nil,
			[]string{"source.slot", "sink.kafka.sasl.user", "source.dsn", atSASL + "password"},
			"kafka-three", "u two",
		},
		{
			"another file", func() { file("other", "kafka-four") },
			map[string]string{"source.dsn": "postgres://u:two@localhost/app", atSASL + "password_file": filepath.Join(dir, "other"), "log.level": "info"},
			[]string{atSASL + "password", "log.level"},
			nil, "kafka-four", "u two",
		},
	} {
		step.before()
		got := cfg.Apply(loaded(step.changes))
		sorted := cmpopts.SortSlices(strings.Compare)
		if diff := cmp.Diff(Reload{Changed: step.changed, Restart: step.restart}, got, sorted, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if password() != step.password || user() != step.user {
			t.Errorf("%s: password %q, login %q", step.name, password(), user())
		}
	}
	encryption, err := kafkaOf(t, relay).TLS()
	if err != nil {
		t.Fatal(err)
	}
	if !encryption.RootCAs.Equal(two.Pool()) {
		t.Error("the old authority is trusted")
	}
}

// Secrets of a login are replaced together, unless its user or its kind changes too: then they need a restart, as these do.
func TestApplyLogins(t *testing.T) {
	certificate := file(t, "ca.pem", certtest.New().PEM())
	one, two := file(t, "one.creds", []byte(someCredentials)), file(t, "two.creds", []byte(someCredentials+"two"))
	for _, tt := range []struct {
		name, sink, before, after string
		want                      Reload
	}{
		{"Sentinel's password", "redis_streams", "sentinel: {primary: p, password: a}", "sentinel: {primary: p, password: b}", Reload{Changed: []string{"sentinel.password"}}},
		{"Sentinel's user", "redis_streams", "sentinel: {primary: p, user: u, password: a}", "sentinel: {primary: p, user: v, password: b}", Reload{Restart: []string{"sentinel.user", "sentinel.password"}}},
		{"Redis' password", "redis_streams", "user: u, password: a", "user: u, password: b", Reload{Changed: []string{"password"}}},
		{"Redis' user", "redis_streams", "user: u, password: a", "user: v, password: b", Reload{Restart: []string{"user", "password"}}},
		{"Redis' first password", "redis_streams", "database: 0", "password: b", Reload{Restart: []string{"password"}}},
		{"RabbitMQ's user", "rabbitmq", "servers: ['a:1'], user: u, password: a", "servers: ['a:1'], user: v, password: b", Reload{Restart: []string{"user", "password"}}},
		{"NATS' user", "jetstream", "user: u, password: a", "user: v, password: b", Reload{Restart: []string{"user", "password"}}},
		{"NATS' token in place of a user", "jetstream", "user: u, password: a", "token: b", Reload{Restart: []string{"user", "password", "token"}}},
		{"NATS' seed in place of a token", "jetstream", "token: a", "nkey_seed: b", Reload{Restart: []string{"token", "nkey_seed"}}},
		{"NATS' credentials", "jetstream", "credentials_file: " + one, "credentials_file: " + two, Reload{Changed: []string{"credentials_file"}}},
		{"NATS' token in place of credentials", "jetstream", "credentials_file: " + one, "token: b", Reload{Restart: []string{"token", "credentials_file"}}},
		{"a receiver's token", "webhook", "url: 'https://a', token: a", "url: 'https://a', token: b", Reload{Changed: []string{"token"}}},
		{"a receiver's user", "webhook", "url: 'https://a', user: u, password: a", "url: 'https://a', user: v, password: b", Reload{Restart: []string{"user", "password"}}},
		{"a user in place of a receiver's token", "webhook", "url: 'https://a', token: a", "url: 'https://a', user: u, password: b", Reload{Restart: []string{"user", "password", "token"}}},
		{"the first signature", "webhook", "url: 'https://a'", "url: 'https://a', signing_secrets: " + signingSecret(1), Reload{Restart: []string{"signing_secrets"}}},
		{"SQS' first certificates", "sqs", "region: eu-central-1", "region: eu-central-1, tls: {ca_file: " + certificate + "}", Reload{Restart: []string{"tls.ca_file"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := "sink." + tt.sink + "."
			cfg, fresh := loaded(t, at, tt.before), loaded(t, at, tt.after)
			got := cfg.Apply(fresh)
			for _, paths := range [][]string{got.Changed, got.Restart} {
				for i := range paths {
					paths[i] = strings.TrimPrefix(paths[i], at)
				}
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("reload (-want +got):\n%s", diff)
			}
			effective := cfg
			if len(tt.want.Restart) == 0 {
				effective = fresh
			}
			for _, k := range keys {
				if strings.HasPrefix(k.path, at) && (k.kind == secret || strings.HasSuffix(k.path, "_file")) && cfg.now().field(k.path).String() != effective.field(k.path).String() {
					t.Errorf("%s is not the effective one", k.path)
				}
			}
		})
	}
}

// loaded returns the configuration of a broker with the keys of the section at.
func loaded(t *testing.T, at, keys string) *Config {
	t.Helper()
	cfg, err := load(t, "outbox.topic: orders\nsink: {"+strings.TrimSuffix(strings.TrimPrefix(at, "sink."), ".")+": {"+keys+"}}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
