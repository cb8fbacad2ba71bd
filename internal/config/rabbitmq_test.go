package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
)

const rabbitFile = `
source: {dsn: host=localhost}
sink:
  rabbitmq:
    servers: ["a:5672", "b:5672"]
    vhost: shop
    user: outbox
`

func TestRabbitMQ(t *testing.T) {
	cleanEnviron(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, rabbitFile+"    password_file: "+file+"\n    content_type: application/json\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cfg.Broker()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := b.(rabbitmq.Config)
	if !ok || got.String() != "RabbitMQ at a:5672, b:5672" || got.VHost != "shop" || got.User != "outbox" || got.ContentType != "application/json" ||
		got.TLS != nil || got.ConnectionName != "outbox_cdc" || got.WindowRecords != rabbitmq.DefaultWindowRecords {
		t.Errorf("broker %+v", got)
	}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if password, err := got.Password(t.Context()); err != nil || password != want {
			t.Errorf("password %q, %v, want the one that is in the file now", password, err)
		}
	}
}

func TestRabbitMQProblems(t *testing.T) {
	cleanEnviron(t)
	for text, want := range map[string]string{
		rabbitFile: "sink.rabbitmq.user: requires sink.rabbitmq.password",
		rabbitFile + "    password: x\n    heartbeat: 1s\n":                                                 "sink.rabbitmq.heartbeat: found 1s",
		rabbitFile + "    password: x\n    tls: {ca_file: /x}\n":                                            "sink.rabbitmq.tls.ca_file",
		rabbitFile + "    password: x\nposition_topic: x\n":                                                 "position_topic: has no effect",
		strings.ReplaceAll(rabbitFile, "    user: outbox\n", ""):                                            "requires sink.rabbitmq.user",
		strings.ReplaceAll(rabbitFile, "a:5672", "a:0") + "    password: x\n":                               "a port is a number",
		rabbitFile + "    password: x\n  kafka: {brokers: [\"a:1\"]}\n":                                     "a relay has one broker",
		rabbitFile + "    password: x\non_bad_record: dead-letter\ndead_letter_topic: /\n":                  "names neither",
		strings.ReplaceAll(rabbitFile, "    servers: [\"a:5672\", \"b:5672\"]\n", "") + "    password: x\n": "sink.rabbitmq.servers: required",
	} {
		cfg, err := load(t, text, nil)
		if err == nil {
			_, err = cfg.Broker()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}
