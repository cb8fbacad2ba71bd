package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

const skipped = "published table is not in outbox.tables"

// setUpWith creates a publication with the given tables, and the slot.
func setUpWith(t *testing.T, r *rig.Rig, publication string) {
	t.Helper()
	r.DB.Exec(t, "CREATE PUBLICATION "+rig.Publication+" "+publication)
	if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
		t.Fatalf("setup: exit code %d\n%s", code, out)
	}
}

// A table that is published beside the outbox is skipped and named once, whatever it has, also if it is not published any more when
// its rows are read.
func TestNeighbours(t *testing.T) {
	need.FullRun(t, "internal/relay/pump tests the rule always")
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `CREATE TABLE hb (id int PRIMARY KEY, ts timestamptz); CREATE TABLE archive (LIKE outbox INCLUDING ALL)`)
	setUpWith(t, r, "FOR TABLE outbox, hb, archive")
	beat := func() {
		t.Helper()
		r.DB.Exec(t, `INSERT INTO hb VALUES (1, now()) ON CONFLICT (id) DO UPDATE SET ts = now();
			INSERT INTO archive (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'archived', 'T', '{}')`)
	}
	beat()
	r.Load.Run(t.Context(), t, 20)
	beat()
	out, _ := rig.Command(t, "check", "-c", r.Config)
	for _, want := range []string{`published, but not in outbox.tables: "public"."archive", "public"."hb"`, "public.archive", "its rows are not relayed"} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	process := r.Run(t)
	r.Deliver(t, 20)
	r.DB.Exec(t, `CREATE TABLE later (id int PRIMARY KEY); ALTER PUBLICATION `+rig.Publication+` ADD TABLE later`)
	r.DB.Exec(t, `INSERT INTO later VALUES (1)`)
	r.Deliver(t, 20)
	process.LoggedTimes(t, skipped, 3)
	beat()
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` DROP TABLE hb; DROP TABLE later`)
	r.Deliver(t, 20)
	process.Terminate(t)
	if n := process.Times(skipped); n != 3 {
		t.Errorf("%d lines for three neighbours:\n%s", n, process.Stderr)
	}
	r.Settle(t, 0)
}

// With a publication for all tables, only the outbox is relayed, and new tables do no harm.
func TestAllTablesArePublished(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	setUpWith(t, r, "FOR ALL TABLES")
	process := r.Run(t)
	r.DB.Exec(t, `CREATE TABLE orders (id int PRIMARY KEY, payload text); INSERT INTO orders VALUES (1, 'x'); UPDATE orders SET payload = 'y'; DELETE FROM orders; TRUNCATE orders`)
	r.Deliver(t, 20)
	process.Terminate(t)
	r.Settle(t, 0)
}

// If another table takes the name of the outbox while the relay is stopped, it does not start and says what to do, and after that no
// row is missing.
func TestOutboxIsReplaced(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestNeighbours runs always")
	r, _ := newAlone(t)
	puts := 0
	put := func() {
		t.Helper()
		puts++
		r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT gen_random_uuid(), 'order', n, $1, '{}' FROM generate_series(1, 20) n`, strconv.Itoa(puts))
	}
	process := r.Run(t)
	put()
	r.Confirmed(t)
	r.AwaitSnapshotOfAll(t)
	process.Terminate(t)
	put() // they wait in the WAL under the name that the table had
	r.DB.Exec(t, `ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL)`)
	put()
	r.Refused(t, exit.NoDelivery, `ADD TABLE "public"."outbox"`, "outbox-cdc recover", `"public"."outbox_old"`)
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` ADD TABLE outbox`)
	r.Refused(t, exit.NoDelivery, "table public.outbox was dropped or renamed, and the one that has its name now", "outbox-cdc recover")
	runRecover(t, r, exit.Continuity, nil, "public.outbox_old was an outbox", "--set outbox.tables=public.outbox_old,outbox", "nothing was changed")
	runRecover(t, r, exit.OK, []string{"--set", "outbox.tables=outbox,outbox_old"}, "20 rows of public.outbox_old", "20 rows of public.outbox ", "Refilled: 40 records")
	process = r.Run(t)
	put()
	r.Confirmed(t)
	process.Terminate(t)
	want := pgtest.QueryRow[[]string](t, r.DB, `SELECT array_agg(id::text ORDER BY id) FROM (SELECT id FROM outbox UNION ALL SELECT id FROM outbox_old) t`)
	var got []string
	order := make(map[string][]string) // types by key
	for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
		got = append(got, rig.Header(rec, "id"))
		order[string(rec.Key)] = append(order[string(rec.Key)], rig.Header(rec, "eventType"))
	}
	for key, types := range order {
		if !slices.IsSorted(types) {
			t.Errorf("key %s is out of order: %v", key, types)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids (-table +topic):\n%s", diff)
	}
}

// A table that is replaced in one transaction, as the documentation says, leaves no gap, whether the relay runs or not. Rows that are
// written to the old table later are not relayed.
func TestOutboxIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestNeighbours runs always")
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			put := func(table string) {
				r.DB.Exec(t, fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', n, '%[1]s', '{}' FROM generate_series(1, 20) n`, table))
			}
			process := r.Run(t)
			put("outbox")
			r.Confirmed(t)
			if !running {
				process.Terminate(t)
				put("outbox")
			}
			r.DB.Exec(t, `ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL); ALTER PUBLICATION `+rig.Publication+` ADD TABLE outbox`)
			put("outbox")
			if running {
				process.Logged(t, "which is another table now")
				put("outbox")
			} else {
				put("outbox_old")
				process = r.Run(t)
			}
			process.Logged(t, "the rows from before its renaming are relayed all the same")
			put("outbox_old")
			put("outbox")
			r.Confirmed(t)
			process.Terminate(t)
			types := make(map[string]int)
			for _, rec := range r.Kafka.ReadAll(t, r.Topic) {
				types[rig.Header(rec, "eventType")]++
			}
			if diff := cmp.Diff(map[string]int{"outbox": 80}, types); diff != "" {
				t.Errorf("records by type (-want +got):\n%s\n%s", diff, process.Stderr)
			}
		})
	}
}

// Rows of a child by inheritance are rows of the outbox, so its rows must be published. The relay that an operator runs finds that
// by itself, and its last line names the exit code and the position.
func TestChildIsNotPublished(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/catalog tests the condition always")
	r, _ := newAlone(t)
	process := r.Run(t)
	r.Deliver(t, 20)
	r.AwaitSnapshot(t)
	r.DB.Exec(t, `CREATE TABLE outbox_2027 (position bigint NOT NULL DEFAULT nextval('outbox_position_seq')) INHERITS (outbox)`)
	r.DB.Exec(t, `INSERT INTO outbox_2027 (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'child', 'T', '{}')`)
	process.Fails(t, 13, `ALTER PUBLICATION "`+rig.Publication+`" ADD TABLE "public"."outbox_2027"`, "outbox-cdc recover", "exit 13 (", "slot "+r.Slot+" at 0/")
	if out, code := rig.Command(t, "check", "-c", r.Config); code == 0 || !strings.Contains(out, "outbox_2027") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` ADD TABLE outbox_2027`)
	r.Refused(t, exit.NoDelivery, "table public.outbox_2027 was added after it was created", "outbox-cdc recover")
	runRecover(t, r, exit.OK, nil, "added after it was created", "Refilled: 1 record ") // it was no outbox when the position was recorded
	r.GoesOn(t)
	if ids := refilled(t, r); len(ids) != 1 {
		t.Errorf("refilled: %v", ids)
	}
}

// The rows of a partition that was dropped, detached or renamed before they were read are relayed, also if it is still published.
func TestPartitionIsGone(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestNeighbours runs always")
	const (
		outbox   = "FOR TABLE outbox"
		all      = "FOR ALL TABLES"
		archived = "FOR TABLE outbox, archive"
	)
	for name, tc := range map[string]struct{ publication, gone string }{
		"dropped":                      {outbox, "DROP TABLE outbox_0"},
		"renamed":                      {outbox, "ALTER TABLE outbox_0 RENAME TO outbox_x"},
		"detached and renamed":         {all, "ALTER TABLE outbox DETACH PARTITION outbox_0; ALTER TABLE outbox_0 RENAME TO outbox_x"},
		"attached to another table":    {archived, "ALTER TABLE outbox DETACH PARTITION outbox_0; ALTER TABLE archive ATTACH PARTITION outbox_0 DEFAULT"},
		"of a table that was replaced": {all, "ALTER TABLE outbox RENAME TO old; CREATE TABLE outbox (LIKE old INCLUDING ALL) PARTITION BY RANGE (id)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			r.DB.Exec(t, `ALTER TABLE outbox RENAME TO whole;
				CREATE TABLE outbox (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id);
				CREATE TABLE outbox_0 PARTITION OF outbox DEFAULT; CREATE TABLE archive (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id)`)
			setUpWith(t, r, tc.publication+" WITH (publish = 'insert', publish_via_partition_root = false)")
			r.Load.Run(t.Context(), t, 20)
			for statement := range strings.SplitSeq(tc.gone, "; ") {
				r.DB.Exec(t, statement)
			}
			r.DB.Exec(t, `CREATE TABLE IF NOT EXISTS outbox_1 PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('00000000-0000-0000-0000-000000000000');
				INSERT INTO whole (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'neighbour', 'T', '{}')`)
			process := r.Run(t)
			r.Arrived(t)
			process.Terminate(t)
			r.Settle(t, 0)
		})
	}
}

// A table that is published beside the outbox is attached to it while the relay runs: all rows after that are delivered, although only
// this table has rows, so that nothing but its definition says that something has changed.
func TestNeighbourIsAttached(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/relay/owner and internal/catalog test the rules always")
	for name, tc := range map[string]struct {
		publication string
		since       int // major version
	}{
		"all tables": {"FOR ALL TABLES WITH (publish = 'insert')", 0},
		"all roots":  {"FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)", 0},
		"a schema":   {"FOR TABLES IN SCHEMA public WITH (publish = 'insert')", 15},
		"both":       {"FOR TABLE outbox, outbox_0 WITH (publish = 'insert')", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			if r.DB.Server.Install().Major < tc.since {
				return
			}
			r.DB.Exec(t, `ALTER TABLE outbox RENAME TO whole; CREATE TABLE outbox (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id);
				CREATE TABLE outbox_0 (LIKE whole INCLUDING ALL EXCLUDING IDENTITY)`)
			setUpWith(t, r, tc.publication)
			process := r.Run(t)
			r.DB.Exec(t, `INSERT INTO outbox_0 (id, aggregatetype, aggregateid, type, payload, position) VALUES ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'order', 'neighbour', 'T', '{}', 0)`)
			r.Confirmed(t)
			r.DB.Exec(t, `DELETE FROM outbox_0; ALTER TABLE outbox ATTACH PARTITION outbox_0 FOR VALUES FROM (MINVALUE) TO (MAXVALUE)`)
			r.Deliver(t, 50)
			process.Terminate(t)
			r.Settle(t, 0)
		})
	}
}

// An archive with the columns of an outbox that was removed from the publication, while its own rows waited and the relay was stopped,
// is still no outbox.
func TestArchiveIsRemoved(t *testing.T) {
	need.FullRun(t, "internal/relay/pump tests the rule always")
	t.Parallel()
	r := rig.New(t)
	r.DB.Exec(t, `CREATE TABLE archive (LIKE outbox INCLUDING ALL)`)
	setUpWith(t, r, "FOR TABLE outbox, archive")
	r.DB.Exec(t, `INSERT INTO archive (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'archived', 'T', '{}')`)
	r.Load.Run(t.Context(), t, 20)
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` DROP TABLE archive`)
	process := r.Run(t)
	r.Arrived(t)
	process.Logged(t, "table=public.archive rows=skipped")
	process.Terminate(t)
	r.Settle(t, 0)
}

// The bytes of a payload are those of the row, also if its type and its table were dropped before the row was read.
func TestTypeIsGone(t *testing.T) {
	need.FullRun(t, "internal/encode tests the rule always")
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		r := rig.NewOn(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t))
		r.DB.Exec(t, `CREATE DOMAIN bin AS bytea; ALTER TABLE outbox RENAME TO whole;
			CREATE TABLE outbox (LIKE whole INCLUDING ALL) PARTITION BY RANGE (id);
			ALTER TABLE outbox ALTER payload TYPE bin USING '';
			CREATE TABLE outbox_0 PARTITION OF outbox DEFAULT`)
		setUpWith(t, r, "FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = false)")
		put := func() {
			t.Helper()
			r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', 'hello')`)
		}
		put()
		r.DB.Exec(t, `DROP TABLE outbox_0; CREATE TABLE outbox_1 PARTITION OF outbox DEFAULT`)
		put()
		r.DB.Exec(t, `ALTER TABLE outbox ALTER payload TYPE text USING 'changed'; DROP DOMAIN bin`)
		put()
		process := r.Run(t)
		for _, rec := range r.Kafka.ReadN(t, 3, r.Topic) {
			if string(rec.Value) != "hello" {
				t.Errorf("value %q", rec.Value)
			}
		}
		process.Terminate(t)
	})
}
