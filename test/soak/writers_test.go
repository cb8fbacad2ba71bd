package soak

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// outbox is as much of the table as the writers use.
const outbox = `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, headers jsonb,
	position bigint GENERATED ALWAYS AS IDENTITY)`

func query[T any](t *testing.T, db *pgtest.DB, sql string) []T {
	t.Helper()
	rows, err := db.Conn(t).Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever the server goes through, the journal says what the database holds.
func TestWriters(t *testing.T) {
	srv := pgtest.Start(t, pgserver.Config{})
	db := pgtest.DatabaseOn(t, srv)
	db.Exec(t, outbox)
	if err := CreateSchema(t.Context(), db.DSN, 16); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	w := &Writers{DSN: db.DSN, Run: "run", Seed: 1, Writers: 4, Aggregates: 16, MaxPayload: 1000, Twins: 6, Journal: NewJournal(&log)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = w.Work(ctx) })
	for _, end := range []func(context.Context) error{srv.Immediate, srv.Kill, srv.Shutdown} {
		before, _ := w.Journal.Committed()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if now, _ := w.Journal.Committed(); now > before+50 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the writers do not write")
			}
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareJournal(t, w.Journal, db)
	if lines := strings.Count(log.String(), " begin "); lines != len(w.Journal.inOrder()) {
		t.Errorf("%d transactions are in the journal's file", lines)
	}
}

func compareJournal(t *testing.T, j *Journal, db *pgtest.DB) {
	t.Helper()
	if left := j.Unresolved(); len(left) > 0 {
		t.Errorf("%d transactions are unresolved", len(left))
	}
	if left := query[string](t, db, `SELECT gid FROM pg_prepared_xacts`); len(left) > 0 {
		t.Errorf("transactions are left prepared: %v", left)
	}
	outcomes := map[delivery.Fate]int{}
	highest := map[string]int64{}
	kinds := map[string]bool{}
	for _, tx := range j.inOrder() {
		e, _ := j.lookup(tx)
		outcomes[e.fate]++
		if e.fate != delivery.Committed {
			continue
		}
		for _, s := range e.sequences {
			highest[s.Aggregate] = max(highest[s.Aggregate], s.First+int64(s.Rows)-1)
		}
		kinds[tx.String()] = true
	}
	transactions, rows := j.Committed()
	done := query[string](t, db, `SELECT tx::text FROM oracle.done`)
	if len(done) != transactions || outcomes[delivery.RolledBack] == 0 {
		t.Errorf("%d transactions are done, the journal has %v", len(done), outcomes)
	}
	for _, tx := range done {
		if !kinds[tx] {
			t.Errorf("transaction %s is done, but not committed", tx)
		}
	}
	drawn := 0
	for _, aggregate := range query[struct {
		Aggregate string
		Seq       int64
	}](t, db, `SELECT (aggregate, seq) FROM oracle.agg`) {
		drawn += int(aggregate.Seq)
		if highest[aggregate.Aggregate] != aggregate.Seq {
			t.Errorf("%s is at %d, the journal says %d", aggregate.Aggregate, aggregate.Seq, highest[aggregate.Aggregate])
		}
	}
	if drawn != rows {
		t.Errorf("%d numbers were drawn, the journal has %d rows", drawn, rows)
	}
	for _, payload := range query[string](t, db, `SELECT payload::text FROM outbox`) {
		if _, err := ParsePayload([]byte(payload)); err != nil {
			t.Errorf("payload %.100s: %v", payload, err)
		}
	}
}

// The proxy sees what is streamed and what is confirmed, and changes nothing.
func TestWALProxy(t *testing.T) {
	db := pgtest.Database(t)
	db.Exec(t, outbox)
	db.Exec(t, `CREATE PUBLICATION p FOR TABLE outbox`)
	db.Exec(t, `SELECT pg_create_logical_replication_slot('oracle_proxy', 'pgoutput')`)
	c := NewConfirms(NewJournal(nil))
	p := walproxy.Start(t, walproxy.Config{Target: db.Server.Addr(), Watch: c.watch("run", nil)})

	e := scriptEvent("a", 1)
	db.Exec(t, `INSERT INTO outbox (id, payload) VALUES ($1, $2::jsonb)`, e.ID(), string(e.Payload(100_000)))
	end := streamOnce(t, db, p.Addr())
	c.Finish()
	found, _ := c.Violations()
	if len(found) != 1 || found[0].Kind != Never || found[0].Aggregate != "a" || found[0].Seq != 1 || found[0].Tx != e.Tx {
		t.Errorf("confirmed %s without storing: found %v", end, texts(found))
	}
	if c.Updates() != 1 {
		t.Errorf("%d status updates were seen", c.Updates())
	}
}

// streamOnce reads one transaction through a proxy, confirms it and waits until the slot
// has moved.
func streamOnce(t *testing.T, db *pgtest.DB, proxy string) (end pglogrepl.LSN) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgconn.Connect(ctx, strings.Replace(db.DSN, db.Server.Addr(), proxy, 1)+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	err = pglogrepl.StartReplication(ctx, conn, "oracle_proxy", 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'p'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for end == 0 {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := message.(*pgproto3.CopyData); ok {
			end = walproxy.ParseWAL(d.Data).EndLSN
		}
	}
	status := pglogrepl.StandbyStatusUpdate{WALWritePosition: end, WALFlushPosition: end, WALApplyPosition: end}
	if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, status); err != nil {
		t.Fatal(err)
	}
	for {
		confirmed := query[string](t, db, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'oracle_proxy'`)
		if confirmed[0] == end.String() {
			return end
		}
		time.Sleep(time.Millisecond)
	}
}
