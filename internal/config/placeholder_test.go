package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaceholders(t *testing.T) {
	cleanEnviron(t)
	const awkward = `p@ss:w/rd'\ %&$`
	environ := []string{"DB_PASSWORD=" + awkward, "DSN=host=localhost user=u dbname=app password=x", "KAFKA_USER=relay", "EMPTY="}
	load := func(yaml string) (*Config, error) {
		return Load(Sources{File: file(t, "relay.yaml", []byte(yaml)), Environ: environ})
	}
	for _, dsn := range []string{
		`"host=localhost user=u dbname=app password='${DB_PASSWORD}'"`,
		`"postgres://u:${DB_PASSWORD}@localhost/app"`,
		`"postgres://u@localhost/app?password=${DB_PASSWORD}"`,
	} {
		cfg, err := load("source: {dsn: " + dsn + "}")
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		pg, err := cfg.Postgres()
		if err != nil || pg.Password != awkward || pg.User != "u" || pg.Database != "app" {
			t.Errorf("%s: %v, password %q", dsn, err, pg.Password)
		}
	}
	cfg, err := load(`{source: {dsn: "${DSN}"}, sink: {kafka: {sasl: {mechanism: PLAIN, user: "${KAFKA_USER}", password: "$${KAFKA_USER}${DB_PASSWORD}"}}}, outbox: {topic: "a.${route}"}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{string(cfg.Source.DSN), cfg.Sink.Kafka.SASL.User, string(cfg.Sink.Kafka.SASL.Password), cfg.Outbox.Topic}
	if diff := cmp.Diff([]string{environ[1][len("DSN="):], "relay", "${KAFKA_USER}" + awkward, "a.${route}"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"UNSET", "EMPTY"} {
		_, err := load("source: {dsn: \"host=localhost password=${" + name + "} user=${KAFKA_USER}\"}")
		if err == nil || !strings.HasSuffix(err.Error(), "relay.yaml:1: source.dsn: refers to ${"+name+"}, but this environment variable is not set") {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}
