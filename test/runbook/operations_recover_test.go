package runbook

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

const dropSlot = `SELECT pg_drop_replication_slot('outbox_cdc')`

func recoverSlot(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, dropSlot)
	o.streams(t)
	o.arrived(t, lost)
}

func recoverAutomatically(t *testing.T, o *operation, srv *pgserver.Server) {
	lost := o.on(t, srv).loseRow(t, dropSlot)
	key, value, _ := strings.Cut(strings.TrimPrefix(o.nextBlock(t, "yaml").text, "source:\n"), ": ")
	value, _, _ = strings.Cut(value, " ")
	o.run(t, runLine+" --set source."+strings.TrimSpace(key)+"="+value).Logged(t, "refilling what the slot has not delivered")
	o.arrived(t, lost)
	o.delivers(t)
}

func prepareToRecover(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv)
	o.exec(t, "ALTER TABLE outbox DROP COLUMN xid, DROP COLUMN position;\nREVOKE SELECT ON outbox FROM cdc")
	o.sql(t)
	o.recovers(t, o.loseRow(t, dropSlot))
}

func recoverUnpruned(t *testing.T, o *operation, srv *pgserver.Server) {
	o.on(t, srv).loseRow(t, dropSlot)
	o.exec(t, `DELETE FROM outbox`)
	lost := o.write(t)
	r := o.run(t, "outbox-cdc recover -c outbox-cdc.yaml")
	if code := r.Exit(t); code != 15 || !strings.Contains(r.Stderr.String(), "has no delivered row") {
		t.Errorf("exit code %d:\n%s", code, r.Stderr.String())
	}
	o.sh(t)
	o.stream(t)
	o.arrived(t, lost)
}

// recoverOtherSystem has no upgraded server: TestRecoverAfterPgUpgrade in test/e2e has one.
func recoverOtherSystem(t *testing.T, o *operation, srv *pgserver.Server) {
	o.nextBlock(t, "sh")
	lost := o.on(t, srv).loseRow(t, `SELECT 1`)
	dump := o.exec(t, `SELECT string_agg(format('(%L, ''order'', ''k'', ''T'', ''{}'', %L, %L)', id, xid, position), ', ') AS rows FROM outbox`)
	o.moves(t)
	o.exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, xid, position) OVERRIDING SYSTEM VALUE VALUES `+dump[0]["rows"])
	o.sh(t)
	o.stream(t)
	o.arrived(t, lost)
}
