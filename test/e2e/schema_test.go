package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// While the writers write, the table changes in every way that leaves it its required
// columns, some of it in a transaction that writes events too. Nothing is lost, and what a
// rewritten table holds does not come again.
func TestTableChangesUnderLoad(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		process := r.Run(t)
		rig.UnderLoad(t, r, func() {
			r.Progress(t)
			for _, change := range []string{
				`ALTER TABLE outbox ADD COLUMN tenant text, ADD COLUMN version int NOT NULL DEFAULT 7`,
				`ALTER TABLE outbox ALTER COLUMN payload TYPE json`,
				`ALTER TABLE outbox ALTER COLUMN type TYPE varchar(40), ALTER COLUMN aggregateid TYPE varchar`,
				`ALTER TABLE outbox DROP COLUMN headers, DROP COLUMN tenant`,
				`VACUUM FULL outbox`,
			} {
				r.DB.Exec(t, change)
				r.Progress(t)
			}
			r.Load.Transaction(t.Context(), t, []string{"ddl"}, func(tx pgx.Tx, put func(n int) error) error {
				for i, change := range []string{
					`ALTER TABLE outbox ADD COLUMN tenant text`,
					`ALTER TABLE outbox ALTER COLUMN payload TYPE jsonb, DROP COLUMN version`,
					`ALTER TABLE outbox RENAME TO moved; ALTER TABLE moved RENAME TO outbox`,
				} {
					if err := put(1 + i); err != nil {
						return err
					}
					if _, err := tx.Exec(t.Context(), change); err != nil {
						return err
					}
				}
				return put(3)
			})
			r.Progress(t)
			r.DB.Exec(t, `ALTER TABLE outbox RENAME TO events; CREATE VIEW outbox AS SELECT * FROM events`)
			r.Progress(t)
		})
		r.Arrived(t)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// A column that records are made of gets another name under load. The relay ends before the
// first row of the new form and goes on, where it was, once it is told the name.
func TestKeyColumnRenamedUnderLoad(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a variant of TestColumnRenamedWhileStopped")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		process := r.Run(t)
		rig.UnderLoad(t, r, func() {
			r.Progress(t)
			// The writers write on, through a view.
			r.DB.Exec(t, `ALTER TABLE outbox RENAME TO events; ALTER TABLE events RENAME COLUMN aggregateid TO aggregate;
				CREATE VIEW outbox AS SELECT id, aggregatetype, aggregate AS aggregateid, type, payload FROM events`)
			process.Fails(t, exit.NoDelivery, "public.events", `"aggregateid"`, "outbox.columns.key")
			process = rig.Start(t, "run", "-c", r.Config, "--set", "outbox.tables=events", "--set", "outbox.columns.key=aggregate")
			process.Logged(t, "streaming")
			r.Progress(t)
		})
		r.Arrived(t)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// In one transaction rows come before and after a required column is dropped. Those of the
// old form are delivered; none of the new one is, however often the relay is started.
func TestColumnDroppedInATransaction(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	r.Load.Transaction(t.Context(), t, []string{"ddl"}, func(tx pgx.Tx, put func(n int) error) error {
		if err := put(3); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `ALTER TABLE outbox DROP COLUMN aggregateid;
			INSERT INTO outbox (id, aggregatetype, type, payload) VALUES (gen_random_uuid(), 'order', '`+rig.PhantomType+`', '{}')`)
		return err
	})
	for starts := range 2 {
		if starts > 0 {
			process = rig.Start(t, "run", "-c", r.Config)
		}
		process.Fails(t, exit.NoDelivery, "public.outbox", "aggregateid", "outbox.columns.key")
		if text := process.Stderr.String(); strings.Contains(text, "has the column now") || strings.Contains(text, "setup --drop") {
			t.Errorf("the relay takes what it has read before the column was dropped for what the table has now:\n%s", rig.Tail(text, 8))
		}
	}
	r.Settle(t, 3)
}

// A partitionedOutbox is a table that puts what is written to its current partition.
type partitionedOutbox struct{ *rig.Rig }

// newPartitionedOutbox puts one in the place of r's table, with partition 0, and makes
// publication and slot.
func newPartitionedOutbox(t *testing.T, r *rig.Rig, viaRoot bool) partitionedOutbox {
	t.Helper()
	p := partitionedOutbox{r}
	r.DB.Exec(t, `DROP TABLE outbox;
		CREATE SEQUENCE partition_number MINVALUE 0;
		CREATE FUNCTION current_partition() RETURNS bigint LANGUAGE sql AS 'SELECT last_value FROM partition_number';
		CREATE TABLE outbox (id uuid NOT NULL, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text, payload jsonb,
			part bigint NOT NULL DEFAULT current_partition()) PARTITION BY LIST (part);
		CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = `+strconv.FormatBool(viaRoot)+`)`)
	p.add(t, 0)
	r.DB.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.Slot)
	return p
}

// add makes partition n the current one: created as one, or attached as a table that exists
// and has its columns in another order.
func (p partitionedOutbox) add(t *testing.T, n int) {
	t.Helper()
	if n%2 == 0 {
		p.DB.Exec(t, fmt.Sprintf(`CREATE TABLE p%[1]d PARTITION OF outbox FOR VALUES IN (%[1]d)`, n))
	} else {
		p.DB.Exec(t, fmt.Sprintf(`CREATE TABLE p%d (part bigint NOT NULL, gone int, payload jsonb, type text, aggregateid text NOT NULL,
			aggregatetype text NOT NULL, id uuid NOT NULL)`, n))
		p.DB.Exec(t, fmt.Sprintf(`ALTER TABLE p%[1]d DROP COLUMN gone; ALTER TABLE outbox ATTACH PARTITION p%[1]d FOR VALUES IN (%[1]d)`, n))
	}
	p.DB.Exec(t, `SELECT setval('partition_number', $1)`, n)
}

// remove drops partition n, or first makes a table of its own of it, or only that.
func (p partitionedOutbox) remove(t *testing.T, n int) {
	t.Helper()
	if n%3 > 0 {
		p.DB.Exec(t, fmt.Sprintf(`ALTER TABLE outbox DETACH PARTITION p%d`, n))
	}
	if n%3 < 2 {
		p.DB.Exec(t, fmt.Sprintf(`DROP TABLE p%d`, n))
	}
}

// Partitions are attached, detached and dropped under load, while the catalog is looked at
// all the time: every row is delivered, whether it comes as one of the root or of its
// partition, and nothing of it ends the relay. Postgres 14 is left out: it sometimes crashes (SIGSEGV) when a partition is
// detached while rows are inserted.
func TestPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it makes and drops partitions under load")
	for _, viaRoot := range []bool{true, false} {
		t.Run(fmt.Sprintf("root=%t", viaRoot), func(t *testing.T) {
			pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
				t.Parallel()
				p := newPartitionedOutbox(t, rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t)), viaRoot)
				w := watchRig(t, p.Rig).run(t)
				p.Load.Pace, p.Load.MaxRows = 2*time.Millisecond, 10
				written := make(chan struct{})
				go func() { // waited for below
					defer close(written)
					p.Load.Run(t.Context(), t, 3000)
				}()
				removed := 0
				for ; !isDone(written); removed++ {
					p.add(t, removed+1)
					p.remove(t, removed)
				}
				p.Arrived(t)
				w.stop()
				w.fails(t, exit.OK)
				p.Settle(t, 0)
				if t.Logf("%d partitions removed", removed); removed < 3 {
					t.Error("these are too few")
				}
			})
		})
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
