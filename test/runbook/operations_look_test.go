package runbook

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func checkStatus(t *testing.T, o *operation, srv *pgserver.Server) {
	r := o.on(t, srv).stream(t)
	o.delivers(t)
	r.Ready(t)
	wait.For(t, "the status to have the record", func() bool { // the relay updates it once a second
		_, status := r.Ask(t, "status")
		return strings.Contains(status, topic)
	})
	o.names["relay.example.com:9187"] = r.AdminAt(t)
	if out, _ := o.sh(t); !strings.Contains(out, "● Healthy") || !strings.Contains(out, "Slot "+o.slot) || !strings.Contains(out, topic) {
		t.Errorf("status says:\n%s", out)
	}
	r.Terminate(t)
}

func largeTransactions(t *testing.T, o *operation, _ *pgserver.Server) {
	o.on(t, startSource(t, nil)).sql(t)
	rows := o.exec(t, `SELECT setconfig::text FROM pg_db_role_setting JOIN pg_roles ON pg_roles.oid = setrole WHERE rolname = 'cdc'`)
	if len(rows) != 1 || rows[0]["setconfig"] != "{logical_decoding_work_mem=256MB}" {
		t.Errorf("settings of the role: %v", rows)
	}
	o.stream(t)
	o.delivers(t)
}

func previewRecords(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	id := o.write(t)
	for range 2 {
		o.next = 0
		if out, _ := o.sh(t); !strings.Contains(out, "topic   "+topic) || !strings.Contains(out, "id: "+id) {
			t.Errorf("tail does not show %s:\n%s", id, out)
		}
	}
	o.stream(t)
	o.arrived(t, id)
	o.once(t)
}
