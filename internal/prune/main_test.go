package prune

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A rig is an outbox in a database of its own, with a publication and a slot.
type rig struct {
	*pgtest.DB
	cfg   Config
	today time.Time // the same during the whole test, even after midnight
}

// newRig creates the table with ddl. If ddl is empty, it uses package migrations.
func newRig(t *testing.T, srv *pgserver.Server, ddl string, partitioned bool) *rig {
	t.Helper()
	fill := func(db *pgtest.DB) {
		if ddl == "" {
			config, err := pgx.ParseConfig(db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			pool := stdlib.OpenDB(*config)
			defer pool.Close()
			if _, err := migrations.Up(t.Context(), pool, migrations.Config{Partitioned: partitioned}); err != nil {
				t.Fatal(err)
			}
		} else {
			db.Exec(t, ddl)
		}
		db.Exec(t, `CREATE PUBLICATION cdc FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	}
	var db *pgtest.DB
	if ddl == "" {
		db = pgtest.FilledDatabase(t, srv, fmt.Sprintf("partitioned %t", partitioned), fill)
	} else {
		db = pgtest.DatabaseOn(t, srv)
		fill(db)
	}
	r := &rig{DB: db, today: time.Now().UTC()}
	r.slot(t, db.Name)
	r.cfg = Config{
		Source: db.Conn(t).Config(), Tables: []string{"outbox"}, Publication: "cdc", Slots: []string{db.Name},
		OlderThan: 72 * time.Hour, AgeColumn: "created_at", Batch: 100, Days: 14, Wait: 20 * time.Second,
	}
	return r
}

func (r *rig) slot(t *testing.T, name string) {
	t.Helper()
	r.Exec(t, fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, name))
}

// insert inserts rows of the given age in one transaction.
const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at)
	SELECT gen_random_uuid(), 'order', n::text, 'T', '{}', now() - make_interval(hours => %d) FROM generate_series(1, %d) n`

func (r *rig) insert(t *testing.T, hours, rows int) {
	t.Helper()
	r.Exec(t, fmt.Sprintf(insert, hours, rows))
}

// expectRows fails the test unless the table has the given number of rows.
func (r *rig) expectRows(t *testing.T, want int) {
	t.Helper()
	if got := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM outbox`); got != want {
		t.Errorf("%d rows are left, want %d", got, want)
	}
}

// impatient shortens the time that later prunes wait for open transactions.
func (r *rig) impatient() {
	r.cfg.patience = patience{
		partition: 300 * time.Millisecond, drop: 150 * time.Millisecond, dropPause: 10 * time.Millisecond, row: 100 * time.Millisecond,
	}
}

// prune runs prune with the rig's configuration, and fails the test on an error.
func (r *rig) prune(t *testing.T) Table {
	t.Helper()
	report, err := Run(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return report.Tables[0]
}

// A consumer takes the place of the relay. It confirms what it reads, unless waits is set.
type consumer struct {
	waits atomic.Bool
	stop  func()
}

// consume streams from a slot until the test ends or stop is called.
func (r *rig) consume(t *testing.T, slot string) *consumer {
	t.Helper()
	conn := r.ReplicationConn(t)
	err := pglogrepl.StartReplication(t.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'cdc'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, done := &consumer{}, make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx, conn)
	}()
	c.stop = func() {
		cancel()
		<-done
		conn.Close(context.Background())
	}
	t.Cleanup(c.stop)
	return c
}

func (c *consumer) run(ctx context.Context, conn *pgconn.PgConn) {
	var read, delivered pglogrepl.LSN
	for ctx.Err() == nil {
		received, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		msg, err := conn.ReceiveMessage(received)
		cancel()
		if data, ok := msg.(*pgproto3.CopyData); ok {
			read = max(read, end(data.Data))
		}
		if !c.waits.Load() {
			delivered = read
		}
		if err != nil && !pgconn.Timeout(err) {
			return
		}
		if delivered != 0 {
			_ = pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: delivered})
		}
	}
}

// end returns the position up to which everything is delivered after a message, or 0 if the message has none.
func end(message []byte) pglogrepl.LSN {
	const commitEnd = 1 + 24 + 1 + 1 + 8 // XLogData header; type, flags and LSN of the commit
	switch {
	case message[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		return pglogrepl.LSN(binary.BigEndian.Uint64(message[1:]))
	case message[0] == pglogrepl.XLogDataByteID && message[25] == 'C':
		return pglogrepl.LSN(binary.BigEndian.Uint64(message[commitEnd:]))
	}
	return 0
}

// runningPrunes selects the running prunes of the database.
const runningPrunes = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = x'6f637072'::int::oid AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// open begins a transaction and runs sql in it.
func (r *rig) open(t *testing.T, sql string) pgx.Tx {
	t.Helper()
	tx, err := r.Conn(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// eventually waits until a query returns true.
func (r *rig) eventually(t *testing.T, what, sql string) {
	t.Helper()
	wait.For(t, what, func() bool { return pgtest.QueryRow[bool](t, r.DB, sql) })
}

// A running is a prune in the background.
type running struct {
	report Report
	err    error
	done   chan struct{}
}

func (r *rig) start(ctx context.Context) *running {
	run := &running{done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.report, run.err = Run(ctx, r.cfg)
	}()
	return run
}

// waitBeside waits for two prunes. Either of them may fail because the other holds the lock.
func waitBeside(t *testing.T, first, second *running) (a, b Table) {
	t.Helper()
	for _, run := range []*running{first, second} {
		<-run.done
		if _, held := errors.AsType[*advisory.HeldError](run.err); run.err != nil && !held {
			t.Fatal(run.err)
		}
	}
	return first.report.Tables[0], second.report.Tables[0]
}

func (r *running) wait(t *testing.T) Table {
	t.Helper()
	<-r.done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.report.Tables[0]
}
