package test

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
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Prunes run one after the other, sometimes two at once, while writers write and the relay is stopped and
// killed again and again. Then what has not arrived is still in the table; in the end
// everything has arrived, and nothing is left.
func TestPruneUnderLoad(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, pgtest.DatabaseOn(t, srv), kafkatest.Fake(t).Cluster)
		r.load.pace, r.load.maxRows = 2*time.Millisecond, 10
		written := make(chan struct{})
		process := r.run(t)
		go func() {
			defer close(written)
			r.load.run(t.Context(), t, 8000)
		}()
		var deleted int64
		for range cycles(t) {
			deleted += r.prune(t).Deleted
			first := r.startPrune(t)
			time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
			process.signal(t, syscall.SIGSTOP) // delivers nothing more, and its connections stand
			second := r.startPrune(t)
			time.Sleep(200 * time.Millisecond)
			process.kill(t)
			deleted += first.pruned(t) + second.pruned(t)
			r.stillThere(t)
			process = r.run(t)
		}
		<-written
		r.arrived(t, time.Minute)
		for began := time.Now(); deleted < int64(r.load.total()) && time.Since(began) < time.Minute; {
			deleted += r.prune(t).Deleted
		}
		if left := pgtest.QueryRow[int](t, r.db, `SELECT count(*)::int FROM outbox`); left != 0 || deleted != int64(r.load.total()) {
			t.Errorf("%d rows deleted of %d, %d are left", deleted, r.load.total(), left)
		}
		process.terminate(t)
		r.settle(t, cycles(t)*unconfirmed)
	})
}

func (r *rig) startPrune(t *testing.T, args ...string) *relayProcess {
	t.Helper()
	return start(t, append([]string{"prune", "-c", r.config, "--older-than", "0s", "--wait", "30s", "--batch", "50", "--json"}, args...)...)
}

// prune runs to its end, which must be a good one.
func (r *rig) prune(t *testing.T, args ...string) prune.Table {
	t.Helper()
	p := r.startPrune(t, args...)
	if code := p.exit(t, time.Minute); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.stderr)
	}
	return p.report(t)
}

func (r *relayProcess) report(t *testing.T) prune.Table {
	t.Helper()
	var report prune.Report
	if err := json.NewDecoder(strings.NewReader(r.stderr.String())).Decode(&report); err != nil || len(report.Tables) != 1 {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	return report.Tables[0]
}

// pruned returns how many rows went with a prune whose relay was killed.
func (r *relayProcess) pruned(t *testing.T) int64 {
	t.Helper()
	if code := r.exit(t, time.Minute); code != 0 && (code != 1 || !strings.Contains(r.stderr.String(), "exit 1 (not confirmed): slot ")) {
		t.Fatalf("exit code %d\n%s", code, r.stderr)
	}
	return r.report(t).Deleted
}

// stillThere demands that every event which is committed and is not in the topic is in the table. No
// relay runs.
func (r *rig) stillThere(t *testing.T) {
	t.Helper()
	committed := r.load.snapshot()
	must(t, r.collector.CatchUp(t.Context()))
	rows, _ := r.connect(t).Query(t.Context(), `SELECT id FROM outbox`)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	must(t, err)
	left := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		left[id] = true
	}
	waiting := 0
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	for key, n := range committed {
		from := 0
		if a := r.ledger.keys[key]; a != nil {
			from = a.next
		}
		for ; from < n; from++ {
			waiting++
			if !left[event{key, from}.id()] {
				t.Errorf("%s/%d is neither in the topic nor in the table", key, from)
			}
		}
	}
	t.Logf("%d events were not delivered, %d rows were in the table", waiting, len(ids))
}

// A partition goes while the relay streams from the table, and the relay goes on.
func TestPrunePartitions(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		r := newRig(t, db, kafkatest.Fake(t).Cluster)
		for _, form := range [][]string{{"down"}, {"up", "--partitioned"}} {
			if out, code := command(t, append(append([]string{"migrate"}, form...), "--dsn", db.DSN)...); code != 0 {
				t.Fatal(out)
			}
		}
		process := r.run(t)
		old := time.Now().UTC().AddDate(0, 0, -9)
		db.Exec(t, fmt.Sprintf(`CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('%s 00:00:00+00') TO ('%s 00:00:00+00');
			ALTER TABLE outbox ALTER created_at SET DEFAULT now() - interval '9 days'`,
			old.Format(time.DateOnly), old.AddDate(0, 0, 1).Format(time.DateOnly)))
		r.load.run(t.Context(), t, 100)
		db.Exec(t, `ALTER TABLE outbox ALTER created_at SET DEFAULT clock_timestamp()`)
		out, code := command(t, "prune", "-c", r.config)
		if code != 0 || !strings.Contains(out, "public.outbox: partition public.outbox_old dropped (") ||
			!strings.Contains(out, "public.outbox: 0 rows from before "+time.Now().UTC().AddDate(0, 0, -7).Format("2006-01-02")) {
			t.Errorf("exit code %d\n%s", code, out)
		}
		r.load.transaction(t.Context(), t, []string{"after"}, func(_ pgx.Tx, put func(int) error) error { return put(10) })
		r.arrived(t, 30*time.Second)
		process.terminate(t)
		r.settle(t, 0)
	})
}
