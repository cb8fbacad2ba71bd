package bench

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/debezium"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/test/kit/debeziumtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/scripttest"
)

func TestMain(m *testing.M) {
	scripttest.Main(pgtest.Wrap(kafkatest.Wrap(m)), map[string]scripttest.Program{
		"outbox-cdc-bench": Main, "outbox-cdc": cli.Main, // in the same directory, where the benchmark looks for it
	})
}

func TestScripts(t *testing.T) { scripttest.Run(t, "testdata/script") }

func TestServerScripts(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestEachBroker runs always")
	scripttest.RunOnServers(t, "testdata/servers")
}

// onTestServers runs the program on the servers of the tests.
func onTestServers(t *testing.T, db *pgtest.DB, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	args = append(args, "--dsn", db.DSN, "--brokers", strings.Join(kafkatest.Broker(t).Addrs, ","))
	var out, errs strings.Builder
	exit = Main(t.Context(), args, os.Environ(), &out, io.MultiWriter(&errs, t.Output()))
	return exit, out.String(), errs.String()
}

// measured returns the output of the program and its report. It fails the test if anything remains on the servers.
func measured(t *testing.T, args ...string) (printed string, r report) {
	t.Helper()
	db := pgtest.Database(t)
	file := filepath.Join(t.TempDir(), "report.json")
	exit, printed, _ := onTestServers(t, db, append(args, "--warm-up", "0s", "--json", file)...)
	if exit != 0 {
		t.Fatalf("exit code %d\n%s", exit, printed)
	}
	r = readReport(t, file)
	var left int
	const query = `SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())
		+ (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_class WHERE relname = 'outbox')`
	if err := db.Conn(t).QueryRow(t.Context(), query).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d slots, publications and tables are left: %v", left, err)
	}
	return printed, r
}

func readReport(t *testing.T, file string) (r report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRelayBesideTheFloor(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it measures the relay on servers")
	if measure.FindPgRecvlogical() == "" {
		need.Missing(t, "no pg_recvlogical")
	}
	printed, r := measured(t, "--relay", relayPath(t), "--runs", "2", "--rows", "3000", "--payload", "200", "--per-transaction", "10,all",
		"--compression", "none,lz4", "--duration", "1s", "--rate", "200")

	if !strings.HasPrefix(printed, "Every record was checked") {
		t.Errorf("the report does not start with the checks:\n%s", printed)
	}
	if len(r.Checks) != 2 || r.Checks[0].Contender != relayName || r.Checks[1].Contender != measure.LibraryName {
		t.Fatalf("checked: %+v", r.Checks)
	}
	for _, c := range r.Checks {
		if c.Records < 4*2*3000 {
			t.Errorf("checked: %+v", c)
		}
	}
	if !strings.Contains(printed, "outbox-cdc ÷ client-library") {
		t.Errorf("the report does not compare the relay with the library:\n%s", printed)
	}
	if len(r.Drains) != 2 || len(r.Latency) != 1 || len(r.Resting) != 1 {
		t.Fatalf("%d drains, %d rates, %d rested", len(r.Drains), len(r.Latency), len(r.Resting))
	}
	for _, d := range r.Drains {
		if len(d.Entries) != 5 {
			t.Errorf("%s: %d entries, want the floor, and two contenders with two codecs", d.Case.Name, len(d.Entries))
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

// TestEachBroker measures each broker that the program can start: the relay and the client library deliver every row, and the
// relay survives an outage. In an ordinary run, only those that need no other program, without the outage.
func TestEachBroker(t *testing.T) {
	t.Parallel()
	relay := relayPath(t)
	for _, sink := range kindNames() {
		t.Run(sink, func(t *testing.T) {
			t.Parallel()
			if sink != "jetstream" && sink != "webhook" {
				need.FullRun(t, "it needs a real broker")
			}
			db := pgtest.Database(t)
			file := filepath.Join(t.TempDir(), "report.json")
			var out, errs strings.Builder
			args := []string{
				"--own-servers", "--sink", sink, "--dsn", db.DSN, "--relay", relay, "--runs", "1", "--rows", "700", "--payload", "200", "--per-transaction", "10",
				"--warm-up", "0s", "--json", file,
			}
			if need.Full() {
				args = append(args, "--rate", "50", "--duration", "1s", "--outage", "1s", "--outage-rows", "900")
			} else {
				args = append(args, "--suite", "drain")
			}
			exit := Main(t.Context(), args, os.Environ(), &out, io.MultiWriter(&errs, t.Output()))
			if exit != 0 {
				t.Fatalf("exit code %d\n%s", exit, &out)
			}
			checkBroker(t, sink, readReport(t, file))
		})
	}
}

// relayPath returns a path under which this test binary is the relay, which saves a build.
func relayPath(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), relayName)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkBroker(t *testing.T, sink string, r report) {
	t.Helper()
	if r.Sink != sink || len(r.Checks) != 2 || len(r.Drains) != 1 {
		t.Fatalf("%+v", r)
	}
	contenders := []string{relayName, measure.LibraryName}
	for _, contender := range contenders {
		if e := r.Drains[0].find(contender, uncompressed); len(e.Runs) != 1 || median(e.Runs, rowRate) <= 0 || drainMemory(e.Runs[1]) <= 0 {
			t.Errorf("%s: %+v", contender, e.Runs)
		}
	}
	if !need.Full() {
		return
	}
	if len(r.Latency) != 1 {
		t.Fatalf("%+v", r)
	}
	for _, contender := range contenders {
		if l := r.Latency[0].find(contender); len(l.Runs) != 1 || median(l.Runs, p50) <= 0 {
			t.Errorf("%s: %+v", contender, l.Runs)
		}
	}
	if len(r.Resting) != 1 || r.Resting[0].Contender != relayName {
		t.Errorf("start-up and idle of %+v, want the relay only", r.Resting)
	}
	if len(r.Outages) != 1 || len(r.Outages[0].Runs) != 1 {
		t.Fatalf("outages: %+v", r.Outages)
	}
	o := r.Outages[0].Runs[1]
	if o.Rows != 900 || o.Down < time.Second || o.CatchUp <= 0 || o.Before <= 0 || o.During < o.Before/2 || o.PeakRSS < o.During {
		t.Errorf("outage: %+v", o)
	}
}

// TestDebezium also measures the real Debezium. It builds the relay of the source tree, like a benchmark without --relay.
func TestDebezium(t *testing.T) {
	t.Parallel()
	debeziumtest.Need(t)
	_, r := measured(t, "--suite", "drain", "--debezium", "--only", debezium.TunedName,
		"--runs", "1", "--rows", "3000", "--payload", "1000", "--per-transaction", "10", "--compression", "zstd")
	if len(r.Checks) != 1 || len(r.Drains) != 1 {
		t.Fatalf("%d contenders checked in %d drains", len(r.Checks), len(r.Drains))
	}
	for _, e := range r.Drains[0].Entries {
		if len(e.Runs) != 1 || median(e.Runs, rowRate) <= 0 {
			t.Errorf("%s: %+v", e.Contender, e.Runs)
		}
	}
}

// TestFailuresAreReported uses a contender that cannot start.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := onTestServers(t, pgtest.Database(t),
		"--suite", "drain", "--relay", "/bin/false", "--only", relayName, "--runs", "1", "--rows", "10", "--payload", "200",
		"--per-transaction", "10")
	if exit != 1 || !strings.Contains(stderr, "2 measurements failed") {
		t.Errorf("exit code %d, standard error:\n%s", exit, stderr)
	}
	if !strings.Contains(stdout, "**Not measured:** 200 B, 10 a transaction: outbox-cdc none") {
		t.Errorf("printed:\n%s", stdout)
	}
}

// If a flag names a server, the benchmark does not start one.
func TestOwnServers(t *testing.T) {
	t.Parallel()
	major := pgtest.Server(t).Install().Major
	s, err := parse([]string{"--own-servers", "--brokers", "127.0.0.1:1", "--postgres", strconv.Itoa(major)})
	if err != nil {
		t.Fatal(err)
	}
	own, err := startServers(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	on, _, err := s.load(t.Context(), own, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if on.brokers != "Kafka at 127.0.0.1:1" {
		t.Errorf("brokers: %s", on.brokers)
	}
	conn, err := pgx.Connect(t.Context(), on.DSN)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := own.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), on.DSN); err == nil {
		t.Error("the server still runs")
	}
}
