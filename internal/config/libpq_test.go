package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

func TestLibpqGetsNoSecretInTheConnectionString(t *testing.T) {
	for _, name := range []string{"PGSSLMODE", "PGSSLROOTCERT", "PGPASSWORD", "PGSERVICE"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		dsn, conninfo string
		environ       []string
	}{
		{
			"postgres://cdc:c4n4ry@localhost:6543/app?sslmode=require&options=-c%20work_mem%3D1MB", "dbname='app'",
			[]string{"PGHOST=localhost", "PGOPTIONS=-c work_mem=1MB", "PGPASSWORD=c4n4ry", "PGPORT=6543", "PGSSLMODE=require", "PGUSER=cdc"},
		},
		{
			`host=127.0.0.1 user=cdc password='c4n4ry \' x' dbname=o\'app connect_timeout=3`, `dbname='o\'app'`,
			[]string{"PGCONNECT_TIMEOUT=3", "PGHOST=127.0.0.1", "PGPASSWORD=c4n4ry ' x", "PGPORT=5432", "PGUSER=cdc"},
		},
		{ // our rule, which libpq does not know
			"postgres://cdc@a.example.com,b.example.com:5433/app", "dbname='app'",
			[]string{"PGHOST=a.example.com,b.example.com", "PGPORT=5432,5433", "PGSSLMODE=verify-full", "PGSSLROOTCERT=system", "PGUSER=cdc"},
		},
	} {
		cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "source.dsn", Value: c.dsn, Flag: "--dsn"}}})
		if err != nil {
			t.Fatal(err)
		}
		conninfo, environ, err := cfg.Libpq()
		if err != nil {
			t.Fatal(err)
		}
		if conninfo != c.conninfo || strings.Contains(conninfo, "c4n4ry") {
			t.Errorf("%s", conninfo)
		}
		if diff := cmp.Diff(c.environ, environ); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
	}
}

func TestKafkaNeedsBrokers(t *testing.T) {
	cfg, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Kafka(); err == nil || !strings.Contains(err.Error(), "sink.kafka.brokers") {
		t.Errorf("without brokers: %v", err)
	}
	cfg, err = config.Load(config.Sources{Flags: []config.Setting{{Key: "sink.kafka.brokers", Value: "a:1,b:2", Flag: "--brokers"}}})
	if err != nil {
		t.Fatal(err)
	}
	if kafka, err := cfg.Kafka(); err != nil || !slices.Equal(kafka.Brokers, []string{"a:1", "b:2"}) {
		t.Errorf("brokers %v, %v", kafka.Brokers, err)
	}
}
