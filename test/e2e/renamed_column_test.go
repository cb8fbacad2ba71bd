package e2e

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// insertInto inserts a row whose payload is in the named column.
func insertInto(t *testing.T, r *rig.Rig, column string, n int) {
	t.Helper()
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, `+column+`) VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('n', $1::int))`, n)
}

// arrives waits until the topic has the numbered records, in order.
func arrives(t *testing.T, r *rig.Rig, numbers ...int) {
	t.Helper()
	wait.For(t, "the records", func() bool { return len(r.Kafka.ReadAll(t, r.Topic)) >= len(numbers) })
	all := r.Kafka.ReadAll(t, r.Topic)
	slices.SortFunc(all, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) })
	var got []int
	for _, rec := range all {
		got = append(got, number(t, rec))
	}
	if !slices.Equal(got, numbers) {
		t.Errorf("the topic has %v, want %v", got, numbers)
	}
}

// TestColumnRenamedWhileStopped: rows are judged by the columns that they were written with. The relay sends those
// that fit its configuration, whatever the table has now, and stops at the first that does not.
func TestColumnRenamedWhileStopped(t *testing.T) {
	need.FullRun(t, "internal/catalog and internal/check test the condition always")
	t.Parallel()
	r := rig.New(t)
	process := r.Run(t)
	insertInto(t, r, "payload", 1)
	arrives(t, r, 1)
	process.Terminate(t)
	insertInto(t, r, "payload", 2)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME payload TO body`)
	insertInto(t, r, "body", 3)

	r.Refused(t, exit.NoDelivery, `no column "payload"`, "[old name, new name]")
	arrives(t, r, 1, 2)
	start := func(columns string) *rig.Process {
		return rig.Start(t, "run", "-c", r.Config, "--set", "outbox.columns.payload="+columns)
	}
	process = start("body")
	arrives(t, r, 1, 2, 3)
	insertInto(t, r, "body", 4)
	arrives(t, r, 1, 2, 3, 4)
	process.Terminate(t)
}

// TestColumnNames: with both names, the relay runs through a renaming, as docs/pattern.md describes it, and through
// rows of both kinds that wait in the WAL. The verbs that read the table take the same names.
func TestColumnNames(t *testing.T) {
	need.FullRun(t, "internal/encode tests the rule always")
	t.Parallel()
	r := rig.New(t)
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic, "outbox.columns: {id: [id, event_id], payload: [payload, body]}\n")
	process := r.Run(t)
	insertInto(t, r, "payload", 1)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME payload TO body`)
	insertInto(t, r, "body", 2)
	arrives(t, r, 1, 2)
	process.Terminate(t)
	insertInto(t, r, "body", 3)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME body TO payload`)
	insertInto(t, r, "payload", 4)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME payload TO body`)
	process = r.Run(t)
	insertInto(t, r, "body", 5)
	arrives(t, r, 1, 2, 3, 4, 5)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME id TO event_id`)
	r.DB.Exec(t, `INSERT INTO outbox (event_id, aggregatetype, aggregateid, type, body) VALUES (gen_random_uuid(), 'order', 'k', 'T', '{"n": 6}')`)
	arrives(t, r, 1, 2, 3, 4, 5, 6)
	r.Confirmed(t)
	process.Terminate(t)
	if out, code := rig.Command(t, "check", "-c", r.Config); code != 0 {
		t.Errorf("check: exit code %d:\n%s", code, out)
	}
	if out, code := rig.Command(t, "audit", "-c", r.Config); code != 0 {
		t.Errorf("audit: exit code %d:\n%s", code, out)
	}
	runReplay(t, r, 0, "", "--where", "true")
	if _, again := replayed(t, r); len(again) != 6 {
		t.Errorf("%d records were replayed", len(again))
	}
}

// TestWrongColumnStopsTheFirstStart: if no row waits, a configuration that does not fit the table still stops the relay.
func TestWrongColumnStopsTheFirstStart(t *testing.T) {
	need.FullRun(t, "internal/catalog and internal/check test the condition always")
	t.Parallel()
	r := rig.New(t)
	rig.Start(t, "run", "-c", r.Config, "--set", "outbox.columns.payload=nothing").Fails(t, exit.NoDelivery, `no column "nothing"`)
}
