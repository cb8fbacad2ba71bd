package rig

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// Header returns the value of a record's header; empty if there is none.
func Header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Arrived waits until every committed event has appeared in the topic. within is the relay's:
// what is in the topic by then is read in any case.
func (r *Rig) Arrived(t *testing.T, within time.Duration) {
	t.Helper()
	committed := r.Load.Snapshot()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if r.Ledger.complete(committed) {
			return
		}
	}
	r.catchUp(t)
	if !r.Ledger.complete(committed) {
		counts := r.Ledger.Counts()
		r.Ledger.Check(t, committed, counts.Duplicates)
		t.Fatalf("%d records after %v, %d events were committed", counts.Records, within, r.Load.Total())
	}
}

// catchUp waits until the collector has read what is in the topic.
func (r *Rig) catchUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Must(t, r.Collector.CatchUp(ctx))
}

// Deliver commits events, and waits until the relay has delivered and confirmed them.
func (r *Rig) Deliver(t *testing.T, events int) {
	t.Helper()
	r.Load.Run(t.Context(), t, events)
	r.Arrived(t, 30*time.Second)
	r.Confirmed(t, 30*time.Second)
}

// Settle reads the topic to its end and checks it against what was committed. duplicates
// is how many there may be.
func (r *Rig) Settle(t *testing.T, duplicates int) {
	t.Helper()
	r.catchUp(t)
	r.settle(t, r.Ledger, duplicates)
}

func (r *Rig) settle(t *testing.T, l *Ledger, duplicates int) {
	t.Helper()
	l.Check(t, r.Load.Snapshot(), duplicates)
	counts := l.Counts()
	t.Logf("%d events committed, %d records, %d duplicates", r.Load.Total(), counts.Records, counts.Duplicates)
}

// Connect opens a connection for questions to the server; it waits for the server.
func (r *Rig) Connect(t *testing.T) *pgx.Conn {
	t.Helper()
	var conn *pgx.Conn
	WaitFor(t, 30*time.Second, "a connection", func() bool {
		var err error
		conn, err = pgx.Connect(context.Background(), r.DB.DSN)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Ask returns the one value of a query.
func Ask[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Confirmed waits until the slot has confirmed everything that was in the log at the call.
func (r *Rig) Confirmed(t *testing.T, within time.Duration) {
	t.Helper()
	AwaitConfirmed(t, r.Connect(t), r.Slot, within)
}

// AwaitConfirmed waits until a slot has confirmed everything that was in the WAL at the call.
func AwaitConfirmed(t *testing.T, conn *pgx.Conn, slot string, within time.Duration) {
	t.Helper()
	AwaitConfirmedOr(t, conn, slot, within, func() bool { return false })
}

// AwaitConfirmedOr is AwaitConfirmed that is also content when other holds.
func AwaitConfirmedOr(t *testing.T, conn *pgx.Conn, slot string, within time.Duration, other func() bool) {
	t.Helper()
	end := Ask[string](t, conn, `SELECT pg_current_wal_insert_lsn()::text`)
	WaitFor(t, within, "the slot to confirm "+end, func() bool {
		return other() || Ask[bool](t, conn, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, slot)
	})
}

// SettleOnce checks records, which nobody has collected, against what was committed: each
// event is to be there once.
func (r *Rig) SettleOnce(t *testing.T, records []*kgo.Record, cfg delivery.Config) {
	t.Helper()
	l := NewLedger(r.Topic, cfg)
	for _, rec := range records {
		l.take(rec)
	}
	r.settle(t, l, 0)
}
