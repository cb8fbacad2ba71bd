package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// ids returns the id headers of records.
func ids(records []*kgo.Record) []string {
	var all []string
	for _, rec := range records {
		for _, h := range rec.Headers {
			if h.Key == "id" {
				all = append(all, string(h.Value))
			}
		}
	}
	return all
}

// A publication made by somebody else sends UPDATEs, DELETEs and TRUNCATEs too. What is no event
// is dropped, a row that gets another key is one anew, and all else goes on.
func TestUpdates(t *testing.T) {
	t.Parallel()
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns)
		w.exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox`)
		w.db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, w.cfg.Source.Slot)
		w.cfg.Route.OnUpdate = encode.UpdateWarn
		w.run(t)
		const values = `'TOPIC', 'k', 'T', `
		w.exec(t, `INSERT INTO outbox VALUES (1, `+values+`'{"v": 1}'); UPDATE outbox SET payload = '{"v": 2}'; `+
			`INSERT INTO outbox VALUES (2, `+values+`'{"v": 3}'); DELETE FROM outbox WHERE id = 1; `+
			`INSERT INTO outbox VALUES (2, `+values+`'{"v": 4}') ON CONFLICT (id) DO UPDATE SET payload = EXCLUDED.payload; `+
			`UPDATE outbox SET id = 3; TRUNCATE outbox; INSERT INTO outbox VALUES (4, `+values+`'{"v": 5}')`)
		got := w.kafka.ReadN(t, 4, w.topic)
		if want := []string{"1", "2", "3", "4"}; !slices.Equal(ids(got), want) {
			t.Errorf("ids %q, want %q", ids(got), want)
		}
		if string(got[2].Value) != `{"v": 4}` {
			t.Errorf("the row with another key is %s", got[2].Value)
		}
		if n := strings.Count(w.log.String(), `msg="updates dropped`); n != 1 {
			t.Errorf("%d lines of dropped updates:\n%s", n, w.log.String())
		}
		w.stop()
		w.fails(t, 0)
	})
}
