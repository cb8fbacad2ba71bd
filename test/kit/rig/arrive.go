package rig

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
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

func (r *Rig) record(rec *kgo.Record) {
	got := received{topic: rec.Topic, key: rec.Key, value: rec.Value, partition: rec.Partition, timestamp: rec.Timestamp}
	for _, h := range rec.Headers {
		switch h.Key {
		case "id":
			got.id = h.Value
		case "eventType":
			got.eventType = h.Value
		}
	}
	r.Ledger.record(got)
}

// Arrived waits until every committed event has appeared in the topic. within is the relay's:
// what is in the topic by then is read in any case.
func (r *Rig) Arrived(t *testing.T, within time.Duration) {
	t.Helper()
	committed := r.Load.Snapshot()
	complete := func() bool {
		_, _, complete := r.Ledger.Seen(committed)
		return complete
	}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if complete() {
			return
		}
	}
	r.catchUp(t)
	if !complete() {
		r.Ledger.Check(t, committed)
		records, _, _ := r.Ledger.Seen(nil)
		t.Fatalf("%d records after %v, %d events were committed", records, within, r.Load.Total())
	}
}

// catchUp waits until the collector has read what is in the topic.
func (r *Rig) catchUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	Must(t, r.Collector.CatchUp(ctx))
}

// Settle reads the topic to its end and checks it against what was committed. duplicates
// is how many repetitions are allowed.
func (r *Rig) Settle(t *testing.T, duplicates int) {
	t.Helper()
	r.catchUp(t)
	r.Ledger.Check(t, r.Load.Snapshot())
	records, got, _ := r.Ledger.Seen(nil)
	t.Logf("%d events committed, %d records, %d repeated", r.Load.Total(), records, got)
	if got > duplicates {
		t.Errorf("%d records are repeated, at most %d may be", got, duplicates)
	}
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
func (r *Rig) SettleOnce(t *testing.T, records []*kgo.Record) {
	t.Helper()
	for _, rec := range records {
		r.record(rec)
	}
	r.Ledger.Check(t, r.Load.Snapshot())
	n, repeated, _ := r.Ledger.Seen(nil)
	t.Logf("%d events committed, %d records, %d repeated", r.Load.Total(), n, repeated)
	if repeated > 0 {
		t.Errorf("%d records are repeated", repeated)
	}
}
