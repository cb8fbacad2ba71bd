package e2e

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A column list that leaves out a column is named as the cause, with the statement against it. The rows that were inserted meanwhile
// stop the relay again, and what it then says ends that.
func TestColumnList(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/catalog tests the condition always")
	pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
		if srv.Install().Major < 15 {
			return
		}
		t.Parallel()
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		deliverAndStop(t, r, 20)
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET TABLE outbox (id, aggregatetype, aggregateid, type)`)
		r.Load.Run(t.Context(), t, 20)
		const mend = `BEGIN; ALTER PUBLICATION "outbox_pub" DROP TABLE "public"."outbox"; ALTER PUBLICATION "outbox_pub" ADD TABLE "public"."outbox"; COMMIT`
		r.Refused(t, exit.NoDelivery, `no column "payload"`, "the publication has a column list", mend, "outbox-cdc recover", "next: publish the table without the column list")
		if out, _ := rig.Command(t, "status", "-c", r.Config, "--set", "admin.listen="); !strings.Contains(out, "The next start fails with exit code 13") || !strings.Contains(out, "Publish the table without the column list") {
			t.Errorf("status:\n%s", out)
		}
		runRecover(t, r, exit.NoDelivery, nil, "the publication has a column list", mend)
		r.DB.Exec(t, strings.TrimSuffix(strings.TrimPrefix(mend, "BEGIN; "), "; COMMIT"))
		r.Refused(t, exit.NoDelivery, "removed and added again", "outbox-cdc recover")
		runRecover(t, r, exit.OK, nil, "removed and added again", "Refilled: ")
		r.GoesOn(t)
		settleRefill(t, r)

		process := r.Run(t) // the stream notices it before the catalog is read again
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET TABLE outbox (id, aggregatetype, aggregateid, type)`)
		r.Load.Run(t.Context(), t, 1)
		process.Fails(t, exit.NoDelivery, "the publication has a column list", mend)
	})
}
