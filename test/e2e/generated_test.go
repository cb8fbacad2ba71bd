package e2e

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestGeneratedPayload: the relay and the verbs that read the table agree on whether a generated column is sent. If it
// is not, all of them say why.
func TestGeneratedPayload(t *testing.T) {
	need.FullRun(t, "internal/encode tests the rule always")
	t.Parallel()
	rig.EachServer(t, func(t *testing.T, r *rig.Rig) {
		r.DB.Exec(t, `ALTER TABLE outbox RENAME payload TO body`)
		r.DB.Exec(t, `ALTER TABLE outbox ADD COLUMN payload jsonb GENERATED ALWAYS AS (body - 'secret') STORED`)
		insert := func(n int) {
			r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, body) VALUES (gen_random_uuid(), 'order', 'k', 'T', jsonb_build_object('n', $1::int))`, n)
		}
		reason := "publish_generated_columns"
		if pgtest.QueryRow[int](t, r.DB, `SELECT current_setting('server_version_num')::int`) < 180000 {
			reason = "only from version 18 on"
		}
		r.DB.Exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)
		slot := func() { r.DB.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.Slot) }
		slot()
		insert(0)
		r.Refused(t, exit.NoDelivery, `no column "payload"`, reason)
		runReplay(t, r, exit.Usage, reason, "--where", "true")
		if out, code := rig.Command(t, "check", "-c", r.Config); code == 0 {
			t.Errorf("check: exit code %d:\n%s", code, out)
		} else {
			for _, want := range []string{`no column "payload"`, reason} {
				if !strings.Contains(out, want) {
					t.Errorf("check does not say %q:\n%s", want, out)
				}
			}
		}
		if reason != "publish_generated_columns" {
			return
		}
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish_generated_columns = stored)`)
		r.DB.Exec(t, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, r.Slot)
		slot()
		process := r.Run(t, "--accept-gap") // the first relay has recorded a position of the slot that was dropped
		insert(1)
		r.Confirmed(t)
		process.Terminate(t)
		runReplay(t, r, 0, "", "--where", "true")
		if _, again := replayed(t, r); len(again) != 2 || number(t, again[0]) != 0 || number(t, again[1]) != 1 {
			t.Errorf("%d records were replayed", len(again))
		}
		if out, code := rig.Command(t, "audit", "-c", r.Config); code != 0 {
			t.Errorf("audit: exit code %d:\n%s", code, out)
		}
	})
}
