package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Wrap(kafkatest.Wrap(m)).Run()
	os.RemoveAll(binDir())
	os.Exit(code)
}

// binDir is where the binary under test is built, once per test run.
var binDir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "outbox-cdc-test-")
	if err != nil {
		panic(err)
	}
	return dir
})

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir(), "outbox-cdc")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "../cmd/outbox-cdc").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// envInt reads a number from the environment.
func envInt(t *testing.T, name string, def int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

const (
	publication = "outbox_pub"
	slotPrefix  = "slot_"
)

// A rig is a database with an outbox, a topic, and a ledger that checks every record of the
// topic as it appears.
type rig struct {
	db        *pgtest.DB
	kafka     *kafkatest.Cluster
	topic     string
	slot      string
	ledger    *ledger
	collector *kafkatest.Collector
	config    string // path of the configuration file
	load      *workload
}

// newRig prepares db by the binary's own migrate, and a topic with partitions.
func newRig(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster) *rig {
	t.Helper()
	topic := cluster.Topic(t, 6, nil)
	r := &rig{
		db: db, kafka: cluster, topic: topic, slot: slotPrefix + strconv.FormatInt(time.Now().UnixNano(), 36),
		ledger: newLedger(topic), load: newWorkload(db.DSN),
	}
	migrate(t, db.DSN)
	r.config = relayConfig(t, db.DSN, cluster.Addrs[0], r.slot, topic, "")
	r.collector = cluster.Collect(t, r.record, topic)
	return r
}

// migrate makes the outbox by the binary's own migrate.
func migrate(t *testing.T, dsn string) {
	t.Helper()
	if out, code := command(t, "migrate", "up", "--dsn", dsn); code != 0 {
		t.Fatalf("migrate: exit code %d\n%s", code, out)
	}
}

// relayConfig writes a configuration file, with more lines at its end, and returns its path.
func relayConfig(t *testing.T, dsn, broker, slot, topic, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `
source: {dsn: %q, publication: %s, slot: %s, create: true}
outbox: {topic: %s}
sink: {kafka: {brokers: [%q]}}
%s
`, dsn, publication, slot, topic, broker, more), 0o600))
	return path
}

// onEachServer runs f with a rig on every Postgres that is at hand.
func onEachServer(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		f(t, newRig(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t)))
	})
}

func (r *rig) record(rec *kgo.Record) {
	got := received{topic: rec.Topic, key: rec.Key, value: rec.Value, partition: rec.Partition, timestamp: rec.Timestamp}
	for _, h := range rec.Headers {
		switch h.Key {
		case "id":
			got.id = h.Value
		case "eventType":
			got.eventType = h.Value
		}
	}
	r.ledger.record(got)
}

// run starts the relay and waits until it streams.
func (r *rig) run(t *testing.T) *relayProcess {
	t.Helper()
	p := start(t, "run", "-c", r.config)
	p.logged(t, "streaming")
	return p
}

// arrived waits until every committed event has appeared in the topic.
func (r *rig) arrived(t *testing.T, within time.Duration) {
	t.Helper()
	committed := r.load.snapshot()
	deadline := time.Now().Add(within)
	for {
		records, _, complete := r.ledger.seen(committed)
		if complete {
			return
		}
		if time.Now().After(deadline) {
			r.ledger.check(t, committed)
			t.Fatalf("%d records after %v, %d events were committed", records, within, r.load.total())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settle reads the topic to its end and checks it against what was committed. duplicates
// is how many repetitions are allowed.
func (r *rig) settle(t *testing.T, duplicates int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, r.collector.CatchUp(ctx))
	r.ledger.check(t, r.load.snapshot())
	records, got, _ := r.ledger.seen(nil)
	t.Logf("%d events committed, %d records, %d repeated", r.load.total(), records, got)
	if got > duplicates {
		t.Errorf("%d records are repeated, at most %d may be", got, duplicates)
	}
}

// connect opens a connection for questions to the server; it waits for the server.
func (r *rig) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	var conn *pgx.Conn
	waitFor(t, 30*time.Second, "a connection", func() bool {
		var err error
		conn, err = pgx.Connect(context.Background(), r.db.DSN)
		return err == nil
	})
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// ask returns the one value of a query.
func ask[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// confirmed waits until the slot has confirmed everything that was in the log at the call.
func (r *rig) confirmed(t *testing.T, within time.Duration) {
	t.Helper()
	awaitConfirmed(t, r.connect(t), r.slot, within)
}

func awaitConfirmed(t *testing.T, conn *pgx.Conn, slot string, within time.Duration) {
	t.Helper()
	awaitConfirmedOr(t, conn, slot, within, func() bool { return false })
}

// awaitConfirmedOr is awaitConfirmed that is also content when other holds.
func awaitConfirmedOr(t *testing.T, conn *pgx.Conn, slot string, within time.Duration, other func() bool) {
	t.Helper()
	end := ask[string](t, conn, `SELECT pg_current_wal_insert_lsn()::text`)
	waitFor(t, within, "the slot to confirm "+end, func() bool {
		return other() || ask[bool](t, conn, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, slot)
	})
}
