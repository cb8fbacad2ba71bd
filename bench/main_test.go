package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/bench/debezium/debeziumtest"
	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(kafkatest.Wrap(m)) }

// measured runs the harness on the tests' servers and returns what it printed
// and its report. Nothing of it may stay on the servers.
func measured(t *testing.T, args ...string) (printed string, r report) {
	t.Helper()
	db, kafka := pgtest.Database(t), kafkatest.Broker(t)
	file := filepath.Join(t.TempDir(), "report.json")
	args = append(args, "--warm-up", "0s", "--dsn", db.DSN, "--brokers", strings.Join(kafka.Addrs, ","), "--json", file)
	var stdout strings.Builder
	if err := run(t.Context(), args, &stdout, t.Output()); err != nil {
		t.Fatalf("%v\n%s", err, stdout.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	var left int
	const query = `SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())
		+ (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_class WHERE relname = 'outbox')`
	if err := db.Conn(t).QueryRow(t.Context(), query).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d slots, publications and tables are left: %v", left, err)
	}
	return stdout.String(), r
}

func TestRelayBesideTheFloor(t *testing.T) {
	if bench.FindPgRecvlogical() == "" {
		need.Missing(t, "no pg_recvlogical")
	}
	printed, r := measured(t, "--runs", "2", "--rows", "3000", "--sizes", "200", "--per-transaction", "10,all",
		"--compression", "none,lz4", "--flow", "1s", "--rates", "200")

	if !strings.HasPrefix(printed, "Every record was checked") {
		t.Errorf("the report does not begin with what was checked:\n%s", printed)
	}
	if len(r.Checks) != 1 || r.Checks[0].Contender != relayName || r.Checks[0].Records < 4*2*3000 {
		t.Errorf("checked: %+v", r.Checks)
	}
	if len(r.Drains) != 2 || len(r.Latency) != 1 || len(r.Resting) != 1 {
		t.Fatalf("%d drains, %d rates, %d rested", len(r.Drains), len(r.Latency), len(r.Resting))
	}
	for _, d := range r.Drains {
		if len(d.Entries) != 3 {
			t.Errorf("%s: %d entries, want the floor and two codecs", d.Case.Name, len(d.Entries))
		}
		for _, e := range d.Entries {
			if len(e.Runs) != 2 || median(e.Runs, rowRate) <= 0 || median(e.Runs, cpuPerMillion) <= 0 {
				t.Errorf("%s, %s %s: %+v", d.Case.Name, e.Contender, e.Compression, e.Runs)
			}
		}
	}
	if e := r.Latency[0].find(relayName); len(e.Runs) != 2 || median(e.Runs, p50) <= 0 {
		t.Errorf("latency: %+v", e.Runs)
	}
	if e := r.Resting[0]; len(e.StartUp) != 2 || len(e.Idle) != 2 {
		t.Errorf("at rest: %+v", e)
	}
}

// TestDebezium measures beside the real one.
func TestDebezium(t *testing.T) {
	debeziumtest.Need(t)
	_, r := measured(t, "--suite", "drain", "--with", "debezium", "--only", debezium.TunedName,
		"--runs", "1", "--rows", "3000", "--sizes", "1000", "--per-transaction", "10", "--compression", "zstd")
	if len(r.Checks) != 1 || len(r.Drains) != 1 {
		t.Fatalf("%d contenders checked in %d drains", len(r.Checks), len(r.Drains))
	}
	for _, e := range r.Drains[0].Entries {
		if len(e.Runs) != 1 || median(e.Runs, rowRate) <= 0 {
			t.Errorf("%s: %+v", e.Contender, e.Runs)
		}
	}
}

// TestFailuresAreReported has a contender that cannot start.
func TestFailuresAreReported(t *testing.T) {
	db, kafka := pgtest.Database(t), kafkatest.Broker(t)
	var stdout strings.Builder
	err := run(t.Context(), []string{
		"--suite", "drain", "--relay", "/bin/false", "--only", relayName, "--runs", "1", "--rows", "10", "--sizes", "200",
		"--per-transaction", "10", "--dsn", db.DSN, "--brokers", strings.Join(kafka.Addrs, ","),
	}, &stdout, t.Output())
	if err == nil || !strings.Contains(err.Error(), "2 measurements could not be made") {
		t.Errorf("run: %v", err)
	}
	if !strings.Contains(stdout.String(), "**Not measured:** 200 B, 10 a transaction: outbox-cdc none") {
		t.Errorf("printed:\n%s", stdout.String())
	}
}

func TestServersOfOurOwn(t *testing.T) {
	major := pgtest.Server(t).Install().Major
	s := mustParse(t, "--brokers", "127.0.0.1:1", "--postgres", strconv.Itoa(major))
	on, err := startServers(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), on.DSN)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := on.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), on.DSN); err == nil {
		t.Error("the server still runs")
	}
}
