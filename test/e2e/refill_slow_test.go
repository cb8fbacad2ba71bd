package e2e

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The relay reads the tables of a refill for as long as it takes, also if that is longer than startup_timeout: when the slot is
// lost under it, and when it finds it lost at its start. A lock takes the place of the table's size: of an index, because every
// query on the table needs it, and nothing that reads the catalog does.
func TestRefillReadsTheTablesWithoutALimit(t *testing.T) {
	need.FullRun(t, "it waits for longer than startup_timeout")
	for name, restart := range map[string]bool{"while it runs": false, "at the start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := watchRefill(t)
			if restart {
				w.stop()
				rig.Must(t, wait.Receive(t, "the relay to stop", w.ended))
			}
			tx := beginLate(t, r, 10)
			dropSlot(t, r)
			_, err := tx.Exec(t.Context(), `REINDEX INDEX outbox_pkey`)
			rig.Must(t, err)
			if restart {
				w.start(t)
			}
			wait.For(t, "a reading of the table that takes longer than startup_timeout", func() bool {
				w.goesOn(t)
				return pgtest.QueryRow[bool](t, r.DB, `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE wait_event_type = 'Lock' AND application_name LIKE 'outbox-cdc%' AND now() - query_start > '3s')`)
			}, func() any {
				return pgtest.QueryRow[string](t, r.DB, `SELECT string_agg(concat_ws(' | ', application_name, state, wait_event_type, query_start, query), e'\n') FROM pg_stat_activity`)
			})
			rig.Must(t, tx.Commit(t.Context()))
			w.logged(t, "refill finished")
			if n := len(refilled(t, r)); n != 10 {
				t.Errorf("%d rows were refilled", n)
			}
		})
	}
}

// The relay waits for transactions in progress, which it names, for as long as they take, also if that is longer than
// startup_timeout.
func TestRefillWaitsForTransactions(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for longer than startup_timeout")
	r, w := watchRefill(t)
	tx := beginLate(t, r, 1)
	dropSlot(t, r)
	w.logged(t, "idle in transaction, INSERT INTO")
	w.createsSlotFor(t, r, "5s")
	rig.Must(t, tx.Commit(t.Context()))
	w.logged(t, "refill finished")
	if n := len(refilled(t, r)); n != 1 {
		t.Errorf("%d rows were refilled", n)
	}
}

// The first start waits in the same way, with an initial copy and without one.
func TestFirstStartWaitsForTransactions(t *testing.T) {
	need.FullRun(t, "it waits until the relay says that it waits")
	for name, initialCopy := range map[string]bool{"with a copy": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafkatest.Broker(t))
			w := watchRig(t, r)
			w.cfg.Positions, w.cfg.InitialCopy, w.cfg.StartupTimeout = position.Place{Topic: position.DefaultTopic}, initialCopy, 2*time.Second
			tx := beginLate(t, r, 1)
			w.start(t)
			w.createsSlotFor(t, r, "3s")
			rig.Must(t, tx.Commit(t.Context()))
			w.logged(t, "msg=streaming")
		})
	}
}

// beginLate begins a transaction that has written rows events.
func beginLate(t *testing.T, r *rig.Rig, rows int) pgx.Tx {
	t.Helper()
	tx, err := r.Connect(t).Begin(t.Context())
	rig.Must(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT gen_random_uuid(), 'order', 'late', 'T', '{}' FROM generate_series(1, $1)`, rows)
	rig.Must(t, err)
	return tx
}

// createsSlotFor waits until the relay has logged that the creation of its slot waits for other transactions, and the creation has
// taken that long, which is more than startup_timeout.
func (w *watched) createsSlotFor(t *testing.T, r *rig.Rig, long string) {
	t.Helper()
	w.logged(t, "for the end of older transactions")
	wait.For(t, "a creation of the slot that takes longer than startup_timeout", func() bool {
		w.goesOn(t)
		return pgtest.QueryRow[bool](t, r.DB, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND wait_event_type = 'Lock' AND now() - query_start > $1::text::interval)`, long)
	})
}

// watchRefill runs a relay with a server of its own, which refills the gap of a lost slot, until it has delivered rows and
// recorded a snapshot.
func watchRefill(t *testing.T) (*rig.Rig, *watched) {
	t.Helper()
	r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafkatest.Broker(t))
	r.Collector.Stop()
	w := watchRig(t, r)
	w.cfg.Positions, w.cfg.RefillOnLoss = position.Place{Topic: position.DefaultTopic}, true
	w.cfg.StartupTimeout, w.cfg.WatchInterval = 2*time.Second, time.Second
	w.run(t)
	r.Load.Run(t.Context(), t, 20)
	r.AwaitSnapshot(t)
	r.Confirmed(t)
	return r, w
}

// goesOn fails the test if the relay has ended.
func (w *watched) goesOn(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.ended:
		t.Fatalf("the relay ends: exit code %d, advice %q: %v", fault.ExitCode(err), fault.Advice(err), err)
	default:
	}
}
