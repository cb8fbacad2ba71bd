package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/prune"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// One or two prunes run at a time while writers write and the test repeatedly stops and kills the relay.
// Every row that has not arrived is still in the table. In the end every row has arrived and prune has
// deleted all of them.
func TestPruneUnderLoad(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it prunes under load")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		r.Load.Pace, r.Load.MaxRows = 2*time.Millisecond, 10
		written := make(chan struct{})
		process := r.Run(t)
		go func() {
			defer close(written)
			r.Load.Run(t.Context(), t, 8000)
		}()
		var deleted int64
		for range rig.Cycles(t) {
			deleted += runPrune(t, r).Deleted
			first := startPrune(t, r)
			<-time.After(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
			process.Signal(t, syscall.SIGSTOP) // delivers nothing more but keeps its connections
			second := startPrune(t, r)
			<-time.After(200 * time.Millisecond)
			process.Kill(t)
			deleted += rowsPruned(t, first) + rowsPruned(t, second)
			stillThere(t, r)
			process = r.Run(t)
		}
		<-written
		r.Arrived(t)
		wait.For(t, "every row to be deleted", func() bool {
			deleted += runPrune(t, r).Deleted
			return deleted >= int64(r.Load.Total())
		}, func() any { return fmt.Sprintf("%d rows deleted of %d", deleted, r.Load.Total()) })
		if left := pgtest.QueryRow[int](t, r.DB, `SELECT count(*)::int FROM outbox`); left != 0 || deleted != int64(r.Load.Total()) {
			t.Errorf("%d rows deleted of %d, %d are left", deleted, r.Load.Total(), left)
		}
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

func startPrune(t *testing.T, r *rig.Rig, args ...string) *rig.Process {
	t.Helper()
	return rig.Start(t, append([]string{"prune", "-c", r.Config, "--older-than", "0s", "--wait", "30s", "--batch", "50", "--json"}, args...)...)
}

// runPrune runs prune to its end and checks that it succeeds.
func runPrune(t *testing.T, r *rig.Rig, args ...string) prune.Table {
	t.Helper()
	p := startPrune(t, r, args...)
	if code := p.Exit(t); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.Stderr)
	}
	return pruneReport(t, p)
}

func pruneReport(t *testing.T, r *rig.Process) prune.Table {
	t.Helper()
	var report prune.Report
	if err := json.NewDecoder(strings.NewReader(r.Stderr.String())).Decode(&report); err != nil || len(report.Tables) != 1 {
		t.Fatalf("%v\n%s", err, r.Stderr)
	}
	return report.Tables[0]
}

// rowsPruned returns how many rows a prune deleted although its relay was killed and another prune ran.
func rowsPruned(t *testing.T, r *rig.Process) int64 {
	t.Helper()
	out := func(text string) bool { return strings.Contains(r.Stderr.String(), text) }
	if code := r.Exit(t); code != 0 && (code != 1 || !out("exit 1 (not confirmed): slot ") && !out("exit 1 (locked by another session): slot ")) {
		t.Fatalf("exit code %d\n%s", code, r.Stderr)
	}
	return pruneReport(t, r).Deleted
}

// stillThere checks that the table has every committed event that is not in the topic. No relay runs
// meanwhile.
func stillThere(t *testing.T, r *rig.Rig) {
	t.Helper()
	committed := r.Load.Snapshot()
	rig.Must(t, r.Collector.CatchUp(t.Context()))
	rows, _ := r.Connect(t).Query(t.Context(), `SELECT id FROM outbox`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	rig.Must(t, err)
	left := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		left[id] = true
	}
	waiting := 0
	for key, n := range committed {
		for from := int(r.Ledger.Delivered(key)); from < n; from++ {
			waiting++
			if !left[rig.Event{Key: key, Number: from}.ID()] {
				t.Errorf("%s/%d is neither in the topic nor in the table", key, from)
			}
		}
	}
	t.Logf("%d events were not delivered, %d rows were in the table", waiting, len(ids))
}

// Prune drops a partition while the relay streams from the table. The relay continues.
func TestPrunePartitions(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/prune has the quick tests")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		r := rig.NewOn(t, db, kafkatest.Broker(t))
		for _, form := range [][]string{{"down"}, {"up", "--partitioned"}} {
			if out, code := rig.Command(t, append(append([]string{"migrate"}, form...), "--dsn", db.DSN)...); code != 0 {
				t.Fatal(out)
			}
		}
		process := r.Run(t)
		old := time.Now().UTC().AddDate(0, 0, -9)
		db.Exec(t, fmt.Sprintf(`CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('%s 00:00:00+00') TO ('%s 00:00:00+00');
			ALTER TABLE outbox ALTER created_at SET DEFAULT now() - interval '9 days'`,
			old.Format(time.DateOnly), old.AddDate(0, 0, 1).Format(time.DateOnly)))
		r.Load.Run(t.Context(), t, 100)
		db.Exec(t, `ALTER TABLE outbox ALTER created_at SET DEFAULT clock_timestamp()`)
		out, code := rig.Command(t, "prune", "-c", r.Config)
		if code != 0 || !strings.Contains(out, "public.outbox: partition public.outbox_old dropped (") ||
			!strings.Contains(out, "public.outbox: 0 rows from before "+time.Now().UTC().AddDate(0, 0, -7).Format("2006-01-02")) {
			t.Errorf("exit code %d\n%s", code, out)
		}
		r.Load.Transaction(t.Context(), t, []string{"after"}, func(_ pgx.Tx, put func(int) error) error { return put(10) })
		r.Arrived(t)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// Any role can hold prune's advisory lock. Prune then fails, deletes nothing, and names the process that
// holds the lock.
func TestPruneLockedByAnybody(t *testing.T) {
	need.FullRun(t, "internal/prune tests the lock always")
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	r.Deliver(t, 10)
	holder := r.Connect(t)
	_, err := holder.Exec(t.Context(), `SET application_name = 'a tool'; SELECT pg_advisory_lock(x'6f637072'::int, 'outbox'::regclass::oid::int)`)
	rig.Must(t, err)
	out, code := rig.Command(t, "prune", "-c", r.Config, "--older-than", "0s")
	for _, want := range []string{
		fmt.Sprintf(`prune public.outbox: the advisory lock is held by process %d (role "postgres", application "a tool")`, holder.PgConn().PID()),
		"pg_terminate_backend(<process>)", "exit 1 (locked by another session): slot " + r.Slot,
	} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in:\n%s", code, want, out)
		}
	}
	if rows := rig.Ask[int](t, r.Connect(t), `SELECT count(*)::int FROM outbox`); rows != r.Load.Total() {
		t.Errorf("%d rows are left of %d", rows, r.Load.Total())
	}
	process.Terminate(t)
	r.Settle(t, 0)
}
