package rig

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Header returns the value of a record's header, or the empty string if there is none.
func Header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Arrived waits until every committed event is in the topic.
func (r *Rig) Arrived(t *testing.T) {
	t.Helper()
	committed := r.Load.Snapshot()
	wait.For(t, "every committed event", func() bool { return r.Ledger.complete(committed) }, func() any {
		counts := r.Ledger.Counts()
		r.Ledger.Check(t, committed, counts.Duplicates)
		return fmt.Sprintf("%d records of %d events", counts.Records, r.Load.Total())
	})
}

// catchUp waits until the collector has read all records that are in the topic at the call.
func (r *Rig) catchUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	Must(t, r.Collector.CatchUp(ctx))
}

// Deliver commits events and waits until the relay has delivered them and the slot has advanced past them.
func (r *Rig) Deliver(t *testing.T, events int) {
	t.Helper()
	r.Load.Run(t.Context(), t, events)
	r.Arrived(t)
	r.Confirmed(t)
}

// Settle reads the topic to its end and compares the records with the committed events. duplicates is the
// maximum number of duplicates.
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

// Connect opens a connection to the database for queries of the test. It retries until the server
// accepts the connection.
func (r *Rig) Connect(t *testing.T) *pgx.Conn {
	t.Helper()
	var conn *pgx.Conn
	wait.For(t, "a connection", func() bool {
		var err error
		conn, err = pgx.Connect(context.Background(), r.DB.DSN)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Ask runs a query that returns a single value and returns the value.
func Ask[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Confirmed waits until the slot's confirmed_flush_lsn reaches the position that was the end of the WAL
// at the call.
func (r *Rig) Confirmed(t *testing.T) {
	t.Helper()
	AwaitConfirmed(t, r.Connect(t), r.Slot)
}

// AwaitConfirmed is like [Rig.Confirmed], for the given connection and slot.
func AwaitConfirmed(t *testing.T, conn *pgx.Conn, slot string) {
	t.Helper()
	AwaitConfirmedOr(t, conn, slot, func() bool { return false })
}

// AwaitConfirmedOr is like AwaitConfirmed, but also returns when other returns true.
func AwaitConfirmedOr(t *testing.T, conn *pgx.Conn, slot string, other func() bool) {
	t.Helper()
	end := Ask[string](t, conn, `SELECT pg_current_wal_insert_lsn()::text`)
	wait.For(t, "the slot to confirm "+end, func() bool {
		return other() || Ask[bool](t, conn, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, slot)
	}, func() any {
		return Ask[string](t, conn, `SELECT concat('confirmed_flush_lsn ', max(confirmed_flush_lsn), ', active ', bool_or(active)) FROM pg_replication_slots WHERE slot_name = $1`, slot)
	})
}

// SettleOnce compares the given records with the committed events. It allows no duplicates.
func (r *Rig) SettleOnce(t *testing.T, records []*kgo.Record, cfg delivery.Config) {
	t.Helper()
	l := NewLedger(r.Topic, cfg)
	for _, rec := range records {
		l.take(rec)
	}
	r.settle(t, l, 0)
}

// DropSlot returns the statement that drops a slot, also while a relay streams from it. It does nothing if the
// slot does not exist.
func DropSlot(slot string) string {
	return `DO $$ BEGIN
		FOR attempt IN 1..1000 LOOP
			BEGIN
				PERFORM pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '` + slot + `' AND active;
				PERFORM pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '` + slot + `';
				RETURN;
			EXCEPTION WHEN object_in_use THEN PERFORM pg_sleep(0.001);
			END;
		END LOOP;
		RAISE 'the slot is always in use';
	END $$`
}
