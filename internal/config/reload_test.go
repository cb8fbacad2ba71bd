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
