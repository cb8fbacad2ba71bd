package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A transaction that stays open holds back nobody else's events, also not across a
// reconnect, and its own come with its commit. The relay reports the WAL that Postgres retains for it,
// with the statement that ends it.
func TestTransactionLeftOpen(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for warnings and for released WAL")
	srv := pgtest.Start(t, pgserver.Config{}) // a slot is not made while the transaction of another test is open
	for name, tc := range map[string]struct {
		pending string
		end     string
		says    []string // PID stands for the process
	}{
		"open":     {`INSERT INTO outbox VALUES (100, 'TOPIC', 'k', 'T', '{}')`, `COMMIT`, []string{`transaction of process PID`, `SELECT pg_terminate_backend(PID)`}},
		"prepared": {`INSERT INTO outbox VALUES (100, 'TOPIC', 'k', 'T', '{}'); PREPARE TRANSACTION 'it''s forgotten'`, `COMMIT PREPARED 'it''s forgotten'`, []string{`COMMIT PREPARED 'it''s forgotten' or ROLLBACK PREPARED 'it''s forgotten'`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns)
			w.cfg.LongTransaction = 200 * time.Millisecond
			w.run(t).delivers(t, "outbox")
			conn := w.db.Conn(t)
			run := func(sql string) {
				t.Helper()
				_, err := conn.PgConn().Exec(t.Context(), strings.ReplaceAll(sql, "TOPIC", w.topic)).ReadAll()
				rig.Must(t, err)
			}
			run(`BEGIN; ` + tc.pending)
			open := pgtest.QueryRow[string](t, w.db, `SELECT lpad((pg_current_wal_insert_lsn() - '0/0')::text, 20, '0')`)
			w.delivers(t, "outbox")
			w.exec(t, `SELECT pg_switch_wal(); CHECKPOINT`)
			for _, want := range tc.says {
				w.logged(t, strings.ReplaceAll(want, "PID", strconv.Itoa(int(conn.PgConn().PID()))))
			}

			w.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, w.cfg.Source.Slot)
			wait.For(t, "a second session", func() bool { return strings.Count(w.log.String(), "msg=streaming") == 2 })
			w.delivers(t, "outbox")
			w.exec(t, `CHECKPOINT`)
			if from := w.restart(t); from >= open {
				t.Errorf("the slot retains WAL from %s on, and the transaction began before %s", from, open)
			}

			run(tc.end)
			w.rows++
			w.kafka.ReadN(t, w.rows, w.topic)
			w.logged(t, "it has ended")
			wait.For(t, "the WAL to be released", func() bool {
				w.exec(t, `CHECKPOINT`)
				return w.restart(t) > open
			})
			if n := strings.Count(w.log.String(), "it has been open for"); n != 1 {
				t.Errorf("%d warnings, want one:\n%s", n, w.log.String())
			}
		})
	}
}

// restart is from where on Postgres retains WAL for the slot, all digits of it.
func (w *watched) restart(t *testing.T) string {
	t.Helper()
	return pgtest.QueryRow[string](t, w.db, `SELECT lpad((restart_lsn - '0/0')::text, 20, '0') FROM pg_replication_slots WHERE slot_name = $1`, w.cfg.Source.Slot)
}

// TestBusyNeighbour: while another database of the server writes, Postgres retains for an idle outbox no more
// WAL than the relay has not confirmed yet and what is written between two of the server's
// running-transactions records. Postgres writes one every 15 s; the short form of the
// test makes it write one every second. OUTBOX_TEST_NEIGHBOUR_SECONDS=90 is the long form.
func TestBusyNeighbour(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it writes WAL of others for seconds")
	const segment = 16 << 20
	seconds := rig.EnvInt(t, "OUTBOX_TEST_NEIGHBOUR_SECONDS", 8)
	between := 15 * time.Second
	if seconds < 30 {
		between = time.Second
	}
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_wal_size": "256MB", "autovacuum": "off"}})
	r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
	process := r.Run(t)
	r.Load.Run(t.Context(), t, 100)
	r.Arrived(t)

	neighbour := pgtest.DatabaseOn(t, srv).Conn(t)
	_, err := neighbour.Exec(t.Context(), `CREATE TABLE busy (n int, pad text)`)
	rig.Must(t, err)
	var held, written, behind []int64 // at each look
	looks := time.NewTicker(50 * time.Millisecond)
	defer looks.Stop()
	recorded := time.Now()
	var last, spacing int64 // of the records to restart from: where the last one is, and the most between two
	began := rig.Ask[string](t, neighbour, `SELECT pg_current_wal_lsn()::text`)
	for range seconds * 20 {
		<-looks.C
		_, err := neighbour.Exec(t.Context(), `INSERT INTO busy SELECT n, repeat('x', 1000) FROM generate_series(1, 1200) n`)
		rig.Must(t, err)
		record := between == time.Second && time.Since(recorded) >= between //nolint:forbidigo // at night only
		if record {
			recorded = time.Now()
			_, err := neighbour.Exec(t.Context(), `CHECKPOINT`)
			rig.Must(t, err)
		}
		var h, w, b int64
		rig.Must(t, neighbour.QueryRow(t.Context(), `SELECT (pg_current_wal_lsn() - restart_lsn)::bigint,
			(pg_current_wal_lsn() - $2::pg_lsn)::bigint, (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1`, r.Slot, began).Scan(&h, &w, &b))
		held, written, behind = append(held, h), append(written, w), append(behind, b)
		if record {
			spacing, last = max(spacing, w-last), w
		}
	}
	total := written[len(written)-1]
	rate := float64(total) / (float64(len(written)) * 0.05)
	unconfirmed, retained := slices.Max(behind), slices.Max(held)
	// Postgres passes over the records it writes until the one it wants to restart from is confirmed, hence two intervals.
	limit := max(2*segment, unconfirmed) + 2*max(spacing, int64(between.Seconds()*rate))
	t.Logf("%d MB of WAL written, %.1f MB/s; the slot retained up to %d MB, %d MB were not confirmed", total>>20, rate/(1<<20), retained>>20, unconfirmed>>20)
	if total < limit {
		t.Fatalf("the neighbour was not busy: it wrote %d MB, and the slot may retain %d MB", total>>20, limit>>20)
	}
	if retained > limit {
		t.Errorf("the slot retained %d MB of WAL, want at most %d MB", retained>>20, limit>>20)
	}
	if may := int64(2*segment + 3*rate); unconfirmed > may {
		t.Errorf("%d MB of WAL were not confirmed, want at most %d MB", unconfirmed>>20, may>>20)
	}
	process.Terminate(t)
	r.Settle(t, 0)
}
