package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Recorded returns the newest position record of the rig's relay.
func (r *Rig) Recorded(t *testing.T) checkpoint.Position {
	t.Helper()
	p := Recorded(t, r.Kafka, r.Slot)
	if p == nil {
		t.Fatalf("no position of %s in %s", r.Slot, position.DefaultTopic)
	}
	return *p
}

// AwaitSnapshot waits until the position record says of a row of the outbox that it was delivered.
func (r *Rig) AwaitSnapshot(t *testing.T) {
	t.Helper()
	AwaitSnapshot(t, r.DB, r.Kafka, r.Slot)
}

// AwaitSnapshotOfAll waits until the position record says of every row of the outbox that it was delivered.
func (r *Rig) AwaitSnapshotOfAll(t *testing.T) {
	t.Helper()
	awaitSnapshot(t, r.DB, r.Kafka, r.Slot, "bool_and")
}

// AwaitSnapshot waits until the position record of the named relay says of a row of the outbox that it was
// delivered.
func AwaitSnapshot(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster, name string) {
	t.Helper()
	awaitSnapshot(t, db, cluster, name, "bool_or")
}

func awaitSnapshot(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster, name, aggregate string) {
	t.Helper()
	const sees = `SELECT COALESCE(%s(pg_visible_in_snapshot(xid, $1::pg_snapshot)), false) FROM outbox`
	var newest atomic.Pointer[checkpoint.Position]
	collector := cluster.Collect(t, func(rec *kgo.Record) { // reads each record once, unlike Recorded
		var p checkpoint.Position
		if isPosition(rec, name) && json.Unmarshal(rec.Value, &p) == nil {
			newest.Store(&p)
		}
	}, position.DefaultTopic)
	defer collector.Stop()
	var looked *checkpoint.Position
	wait.For(t, "a snapshot in the position record", func() bool {
		p := newest.Load()
		if p == looked || len(p.Snapshots) == 0 {
			return false
		}
		looked = p
		return pgtest.QueryRow[bool](t, db, fmt.Sprintf(sees, aggregate), p.Snapshots[0].Text)
	})
}

// isPosition reports whether rec is a position record of the named relay.
func isPosition(rec *kgo.Record, name string) bool {
	return string(rec.Key) == name+"/"+sink.PositionKey && rec.Value != nil
}

// Recorded returns the newest position record of the named relay, or nil if there is none.
func Recorded(t *testing.T, cluster *kafkatest.Cluster, name string) *checkpoint.Position {
	t.Helper()
	var newest *checkpoint.Position
	for _, rec := range cluster.ReadAll(t, position.DefaultTopic) {
		if isPosition(rec, name) {
			newest = new(checkpoint.Position)
			Must(t, json.Unmarshal(rec.Value, newest))
		}
	}
	return newest
}

// Refused starts the relay. It fails the test unless the relay exits with code and its output contains all
// of says.
func (r *Rig) Refused(t *testing.T, code int, says ...string) {
	t.Helper()
	Start(t, "run", "-c", r.Config).Fails(t, code, says...)
}

// GoesOn starts the relay with args, writes events, waits until they are in the topic and stops the relay.
func (r *Rig) GoesOn(t *testing.T, args ...string) {
	t.Helper()
	process := r.Run(t, args...)
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)
	process.Terminate(t)
}

// Must fails the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// EnvInt returns an integer from the environment, or def if the variable is not set.
func EnvInt(t *testing.T, name string, def int) int {
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

// Names of objects in a rig's database.
const (
	Publication = "outbox_pub" // the publication of every rig
	SlotPrefix  = "slot_"      // prefix of slot names
)

// A Collector reads the records of the topic from the beginning.
type Collector interface {
	Count() int64                      // number of records that were read
	CatchUp(ctx context.Context) error // until it has read what was in the topic at the call
	Stop()
}

// A Rig has a database with an outbox, a topic, and a ledger that checks each record of the topic
// when it arrives.
type Rig struct {
	DB        *pgtest.DB
	Kafka     *kafkatest.Cluster
	Topic     string
	Slot      string
	Ledger    *Ledger
	Collector Collector
	Config    string // path of the configuration file
	Load      *Workload

	ran bool // there was a call of Run
}

// New returns a rig on the shared Postgres and on the Kafka that [kafkatest.Broker] returns.
func New(t *testing.T) *Rig {
	t.Helper()
	return NewOn(t, Database(t), kafkatest.Broker(t))
}

// Database is like [DatabaseOn], on the shared Postgres.
func Database(t *testing.T) *pgtest.DB {
	t.Helper()
	return DatabaseOn(t, pgtest.Server(t))
}

// migrated is the name of databases in which the migrate command has run.
const migrated = "migrated"

// DatabaseOn is like [pgtest.DatabaseOn], for a rig: the database has what the binary's migrate command creates.
func DatabaseOn(t *testing.T, srv *pgserver.Server) *pgtest.DB {
	t.Helper()
	return pgtest.FilledDatabase(t, srv, migrated, func(db *pgtest.DB) { Migrate(t, db.DSN) })
}

// NewOn returns a rig on db, in which it runs the binary's migrate command unless db is of [DatabaseOn], and on cluster, in
// which it creates a topic.
func NewOn(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster) *Rig {
	t.Helper()
	topic := cluster.Topic(t, 6, nil)
	r := &Rig{
		DB: db, Kafka: cluster, Topic: topic, Slot: SlotPrefix + strconv.FormatInt(time.Now().UnixNano(), 36),
		Ledger: NewLedger(topic, delivery.Config{}), Load: newWorkload(db.DSN),
	}
	prepare(t, db)
	r.Config = WriteConfig(t, db.DSN, cluster.Addrs[0], r.Slot, topic, "")
	r.Collector = cluster.Collect(t, r.Ledger.take, topic)
	return r
}

func prepare(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if db.Filled != migrated {
		Migrate(t, db.DSN)
	}
}

// Migrate creates the outbox with the binary's migrate command.
func Migrate(t *testing.T, dsn string) {
	t.Helper()
	if out, code := Command(t, "migrate", "up", "--dsn", dsn); code != 0 {
		t.Fatalf("migrate: exit code %d\n%s", code, out)
	}
}

// WriteConfig writes a configuration file that ends with more, and returns its path.
func WriteConfig(t *testing.T, dsn, broker, slot, topic, more string) string {
	t.Helper()
	return WriteConfigOver(t, dsn, slot, topic, fmt.Sprintf("sink: {kafka: {brokers: [%q]}}\n%s", broker, more))
}

// WriteConfigOver is like WriteConfig for any broker: the section sink is in more.
func WriteConfigOver(t *testing.T, dsn, slot, topic, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	Must(t, os.WriteFile(path, fmt.Appendf(nil, `
source: {dsn: %q, publication: %s, slot: %s}
outbox: {topic: %q}
%s
`, dsn, Publication, slot, topic, more), 0o600))
	return path
}

// Run starts the relay, with additional arguments, and waits until it streams. The first Run creates the publication and the slot
// unless the test has, because a relay needs four sessions to create them. If there are arguments, it leaves that to the relay: they may
// say what the relay creates.
func (r *Rig) Run(t *testing.T, args ...string) *Process {
	t.Helper()
	if !r.ran && len(args) == 0 {
		r.createSource(t)
	}
	r.ran = true
	p := Start(t, append([]string{"run", "-c", r.Config}, args...)...)
	p.Logged(t, "streaming")
	return p
}

// createSource creates what the relay creates at its first start, unless there is a publication or a slot.
func (r *Rig) createSource(t *testing.T) {
	t.Helper()
	const exists = `SELECT EXISTS (SELECT FROM pg_publication) OR EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`
	if pgtest.QueryRow[bool](t, r.DB, exists, r.Slot) {
		return
	}
	r.DB.Exec(t, `CREATE PUBLICATION `+Publication+` FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	r.DB.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.Slot)
}
