package e2e

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A column list that leaves out a column is named as the cause, with the statement against it. The rows that were inserted meanwhile
// stop the relay again, and what it then says ends that.
func TestColumnList(t *testing.T) {
	t.Parallel()
	pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
		if srv.Install().Major < 15 {
			return
		}
		t.Parallel()
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
		deliverAndStop(t, r, 20)
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET TABLE outbox (id, aggregatetype, aggregateid, type)`)
		r.Load.Run(t.Context(), t, 20)
		const (
			mend      = `BEGIN; ALTER PUBLICATION "outbox_pub" DROP TABLE "public"."outbox"; ALTER PUBLICATION "outbox_pub" ADD TABLE "public"."outbox"; COMMIT`
			startOver = ` --drop --dsn "$OWNER_DSN", then outbox-cdc setup -c `
		)
		r.Refused(t, exit.NoDelivery, `no column "payload"`, "the publication has a column list", mend, startOver, "next: publish the table without the column list")
		r.DB.Exec(t, strings.TrimSuffix(strings.TrimPrefix(mend, "BEGIN; "), "; COMMIT"))
		r.Refused(t, exit.NoDelivery, `no column "payload"`, "the row was written before", startOver, "next: re-create the slot and recover")
		for _, args := range [][]string{{"setup", "--drop"}, {"setup"}} {
			if out, code := rig.Command(t, append(args, "-c", r.Config)...); code != 0 {
				t.Fatalf("%v: exit code %d\n%s", args, code, out)
			}
		}
		runRecover(t, r, 0, nil)
		r.GoesOn(t)
		r.Settle(t, 0)
	})
}
