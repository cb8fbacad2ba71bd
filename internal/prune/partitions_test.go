package prune

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// partition creates a partition with rows, for the day of the given number of days ago.
func (r *rig) partition(t *testing.T, daysAgo, rows int) string {
	t.Helper()
	day := r.today.AddDate(0, 0, -daysAgo)
	name := "public.outbox_" + day.Format("20060102")
	r.Exec(t, fmt.Sprintf(`CREATE TABLE %s PARTITION OF outbox FOR VALUES FROM ('%s 00:00:00+00') TO ('%s 00:00:00+00')`,
		name, day.Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly)))
	r.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at)
		SELECT gen_random_uuid(), 'o', 'o', 'T', $1::timestamptz FROM generate_series(1, $2)`, day.Format(time.DateOnly)+" 12:00:00+00", rows)
	return name
}

func names(partitions []Partition) []string {
	all := []string{}
	for _, one := range partitions {
		all = append(all, one.Name)
	}
	return all
}

// Prune drops old partitions, and deletes old rows of the default partition. It keeps young rows, and partitions
// whose day is too recent.
func TestPartitions(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		r := newRig(t, srv, "", true)
		r.consume(t, r.Name)
		old := []string{r.partition(t, 30, 10), r.partition(t, 9, 10), r.partition(t, 5, 10)}
		slices.Sort(old)
		r.partition(t, 2, 10)
		r.insert(t, 24*200, 7) // into the default partition
		r.insert(t, 24*3-1, 3) // into the default partition, too recent
		r.insert(t, 0, 2)
		r.cfg.Days = 16

		r.cfg.DryRun = true
		got := r.prune(t)
		if diff := cmp.Diff(old, names(got.Dropped)); diff != "" || got.Deleted != 7 || len(got.Created) > 0 || got.Dropped[0].Bytes == 0 {
			t.Errorf("dry run: %+v\n%s", got, diff)
		}
		r.expectRows(t, 52)
		r.cfg.DryRun = false
		got = r.prune(t)
		coming := []string{r.day(15), r.day(16)}
		if diff := cmp.Diff(old, names(got.Dropped)); diff != "" || got.Deleted != 7 || !slices.Equal(got.Created, coming) || len(got.Kept) > 0 {
			t.Errorf("%+v\n%s", got, diff)
		}
		r.expectRows(t, 15)
		if got := r.prune(t); len(got.Dropped)+len(got.Created) > 0 || got.Deleted > 0 {
			t.Errorf("again: %+v", got)
		}
	})
}

func (r *rig) day(days int) string {
	return "public.outbox_" + r.today.AddDate(0, 0, days).Format("20060102")
}

// Prune keeps a partition to which an open transaction has written, and all partitions while a transaction holds a
// lock on the table. It does not block writers for long.
func TestPartitionInUse(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "prune waits for locks")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		r := newRig(t, srv, "", true)
		r.consume(t, r.Name)
		used, idle := r.partition(t, 9, 1), r.partition(t, 8, 1)
		const late = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at) VALUES (gen_random_uuid(), 'o', 'o', 'T', now() - interval '9 days')`
		tx := r.open(t, late)

		r.impatient()
		longest := r.writeMeanwhile(t, func() {
			got := r.prune(t)
			if diff := cmp.Diff([]string{used, idle}, slices.Sorted(slices.Values(names(got.Kept)))); diff != "" || len(got.Dropped) > 0 {
				t.Errorf("%+v\n%s", got, diff)
			}
		})
		if longest > 2*time.Second { // the attempts to drop take longer
			t.Errorf("a writer was blocked for %s", longest)
		}
		t.Logf("writers waited for up to %s", longest)
		r.Exec(t, late) // no lock is left
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.cfg.patience = patience{}
		if got := r.prune(t); len(got.Dropped) != 2 || len(got.Kept) > 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A transaction that writes to an old partition waits while prune checks that its rows are delivered. Prune then
// gives way to it.
func TestLateRow(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	c := r.consume(t, r.Name)
	run := r.startLocking(t, r.partition(t, 9, 1), c)
	r.marked(t)
	done := r.execMeanwhile(t, fmt.Sprintf(insert, 24*9, 1))
	r.eventually(t, "a writer to wait, or to be done", `SELECT (SELECT count(*) > 1 FROM outbox) OR EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'RowExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	run.givesWay(t, c, done)
	r.expectRows(t, 2)
	if got := r.prune(t); len(got.Dropped) != 1 {
		t.Errorf("%+v", got)
	}
	r.expectRows(t, 0)
}

// startLocking starts a prune that locks a partition. The prune then waits for c, which does not confirm.
func (r *rig) startLocking(t *testing.T, partition string, c *consumer) *running {
	t.Helper()
	used := r.open(t, `LOCK TABLE `+partition+` IN ROW EXCLUSIVE MODE`)
	run := r.start(t.Context())
	r.eventually(t, "the prune to wait", `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	c.waits.Store(true)
	if err := used.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return run
}

// givesWay makes c confirm again. Prune must then keep its partition and let the waiting statement continue. done
// returns the result of that statement.
func (r *running) givesWay(t *testing.T, c *consumer, done <-chan error) {
	t.Helper()
	c.waits.Store(false)
	if got := r.wait(t); len(got.Dropped) != 0 || len(got.Kept) != 1 {
		t.Errorf("%+v", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// execMeanwhile runs a statement in the background.
func (r *rig) execMeanwhile(t *testing.T, sql string) <-chan error {
	t.Helper()
	conn, done := r.Conn(t), make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), sql)
		done <- err
	}()
	return done
}

// writeMeanwhile inserts rows of today while f runs. It returns the duration of the slowest insert.
func (r *rig) writeMeanwhile(t *testing.T, f func()) (longest time.Duration) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error, 1)
	conn := r.Conn(t)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			began := time.Now()
			_, err = conn.Exec(t.Context(), fmt.Sprintf(insert, 0, 1))
			longest = max(longest, time.Since(began)) //nolint:forbidigo // the test judges it only at night
		}
		done <- err
	}()
	f()
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	return longest
}

// A prepared transaction counts as open.
func TestPreparedTransaction(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_prepared_transactions": "2"}})
	r := newRig(t, srv, "", true)
	r.consume(t, r.Name)
	r.partition(t, 9, 1)
	r.Exec(t, `BEGIN; INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at)
		VALUES (gen_random_uuid(), 'o', 'o', 'T', now() - interval '9 days'), (gen_random_uuid(), 'o', 'o', 'T', now() - interval '90 days'); PREPARE TRANSACTION 'p'`)
	r.impatient()
	if got := r.prune(t); len(got.Dropped) > 0 || len(got.Kept) != 1 || got.Deleted != 0 {
		t.Errorf("%+v", got)
	}
	r.Exec(t, `COMMIT PREPARED 'p'`)
	r.cfg.patience = patience{}
	r.expectRows(t, 3)
	r.prune(t)
	r.expectRows(t, 0)
}

// Two prunes that drop partitions at the same time do not disturb each other. Either may drop a partition.
func TestTwoDropAtOnce(t *testing.T) {
	need.FullRun(t, "two prunes of partitions; TestTwoAtOnce runs always")
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	r.consume(t, r.Name)
	for days := range 40 { // more than prune drops at once
		r.partition(t, 10+days, 1)
	}
	first, second := r.start(t.Context()), r.start(t.Context())
	a, b := waitBeside(t, first, second)
	if len(a.Kept)+len(b.Kept) > 0 {
		t.Errorf("kept %v and %v", a.Kept, b.Kept)
	}
	r.prune(t)
	r.expectRows(t, 0)
}

// Another prune may drop a partition before its owner is looked up.
func TestRightsOnADroppedPartition(t *testing.T) {
	t.Parallel()
	p := &pruner{cfg: newRig(t, pgtest.Server(t), "", true).cfg}
	if err := p.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.close(t.Context())
	dropped := part{OID: math.MaxUint32}
	if err := p.checkRights(t.Context(), &relation{partitions: []part{dropped}, leaves: []part{dropped}}); err != nil {
		t.Error(err)
	}
}

// If the partitions are not by age, prune deletes rows one by one.
func TestOtherPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), `
		CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, created_at timestamptz) PARTITION BY LIST (aggregatetype);
		CREATE TABLE outbox_order PARTITION OF outbox FOR VALUES IN ('order') PARTITION BY HASH (id);
		CREATE TABLE "outbox Order 0" PARTITION OF outbox_order FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE outbox_order_1 PARTITION OF outbox_order FOR VALUES WITH (MODULUS 2, REMAINDER 1)`, false)
	r.consume(t, r.Name)
	r.insert(t, 100, 50)
	r.insert(t, 1, 50)
	if got := r.prune(t); got.Deleted != 50 || len(got.Dropped) > 0 {
		t.Errorf("%+v", got)
	}
	r.expectRows(t, 50)
}

// Prune does not create partitions of a table that somebody else has partitioned by age. It warns if some of the next days are missing.
func TestMissingPartitions(t *testing.T) {
	t.Parallel()
	for kind, midnight := range map[string]string{"timestamptz": " 00:00:00+00", "timestamp": " 00:00:00", "date": " 00:00:00"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pgtest.Server(t), `
				CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, created_at `+kind+`) PARTITION BY RANGE (created_at);
				CREATE TABLE outbox_past PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2026-11-01')`, false)
			r.consume(t, r.Name)
			day := func(n int) string { return r.today.AddDate(0, 0, n).Format(time.DateOnly) }
			create := func(name string, from, to int) string {
				return fmt.Sprintf(`CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM ('%s') TO ('%s');`, name, day(from), day(to))
			}
			for _, tc := range []struct{ change, warning string }{
				{`SELECT 1`, "from now on:"},
				{create("now", -1, 2), "from " + day(2) + midnight + " on:"},
				{create("later", 7, 9), "from " + day(2) + midnight + " to " + day(7) + midnight + ":"},
				{create("sooner", 3, 6), "from " + day(2) + midnight + " to " + day(3) + midnight + ":"},
				{create("gap", 2, 3), ""},
				{`DROP TABLE outbox_now, outbox_gap, outbox_sooner, outbox_later, outbox_past`, "from now on:"},
				{`CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`, ""},
				{`DROP TABLE outbox_rest; CREATE TABLE outbox_all PARTITION OF outbox FOR VALUES FROM ('2026-11-01') TO (MAXVALUE)`, ""},
				{`DROP TABLE outbox_all; CREATE TABLE outbox_all PARTITION OF outbox FOR VALUES FROM ('-infinity') TO ('infinity')`, ""},
			} {
				r.Exec(t, tc.change)
				r.cfg.DryRun, r.cfg.OlderThan = true, 100*365*24*time.Hour // no partition is old enough
				got := r.prune(t)
				warning := strings.Join(got.Warnings, " ")
				if !got.Whole || (warning != "") != (tc.warning != "") || !strings.Contains(warning, tc.warning) {
					t.Errorf("%s: %+v, want the warning %q", tc.change, got, tc.warning)
				}
			}
			r.Exec(t, `DROP TABLE outbox_all`)
			r.cfg.Slots = []string{"none"}
			report, err := Run(t.Context(), r.cfg)
			if err == nil || len(report.Tables) != 1 || !strings.Contains(strings.Join(report.Tables[0].Warnings, " "), "no partition takes rows") {
				t.Errorf("without its slot: %+v, %v", report, err)
			}
		})
	}
}

// A DateStyle that abbreviates the time zone does not change what a bound means: Postgres does not know each abbreviation that it prints.
func TestPartitionsInAnotherDateStyle(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	r.consume(t, r.Name)
	r.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET datestyle = 'SQL, DMY'; ALTER DATABASE %[1]s SET timezone = 'Asia/Jakarta'`, r.Name))
	old := r.partition(t, 9, 1)
	if got := r.prune(t); !slices.Equal(names(got.Dropped), []string{old}) {
		t.Errorf("%+v", got)
	}
}

// Partitions of another table by another type are none of prune's business, in whatever order Postgres reads the catalog.
func TestPartitionsOfAnotherTable(t *testing.T) {
	need.FullRun(t, "TestPartitions runs always")
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	r.consume(t, r.Name)
	r.Exec(t, `
		CREATE TABLE invoices (id uuid) PARTITION BY RANGE (id);
		CREATE TABLE invoices_old PARTITION OF invoices
			FOR VALUES FROM ('01a21f73-9c00-0000-0000-000000000000') TO ('01a224a1-9c00-0000-0000-000000000000')`)
	for _, way := range []string{"nestloop", "indexscan", "bitmapscan", "mergejoin"} { // so that it reads all of pg_class
		r.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET enable_%s = off`, r.Name, way))
	}
	r.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET jit = off`, r.Name)) // such plans look expensive enough to be compiled, which takes seconds
	old := r.partition(t, 9, 1)
	if got := r.prune(t); !slices.Equal(names(got.Dropped), []string{old}) {
		t.Errorf("%+v", got)
	}
}

// Only the owner can drop a partition. If another object depends on it, the error of the server says so.
func TestPartitionRefused(t *testing.T) {
	need.FullRun(t, "TestPartitions runs always")
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", true)
	r.consume(t, r.Name)
	name := r.partition(t, 9, 1)
	r.Exec(t, `CREATE VIEW v AS SELECT * FROM `+name)
	_, err := Run(t.Context(), r.cfg)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(refusal.Message, name[len("public."):]) {
		t.Errorf("%v", err)
	}
	r.expectRows(t, 1)
	r.role(t, `GRANT SELECT, DELETE ON outbox TO %s`)
	if _, err := Run(t.Context(), r.cfg); !errors.Is(err, replication.ErrAccess) {
		t.Errorf("as another role: %v", err)
	}
	r.expectRows(t, 1)
}
