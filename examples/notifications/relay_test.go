package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// From the order to the notification: the relay is stopped in the middle, another one continues, and it
// sends some records again. Each committed order has its notifications once, a rolled back order none.
func TestWithTheRelay(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, s *shop) {
		shopDB := pgtest.Database(t)
		slot := shopDB.Name
		relay := []string{"--dsn", shopDB.DSN, "--publication", "orders", "--slot", slot}
		command(t, "migrate", "up", "--only", "outbox", "--dsn", shopDB.DSN)
		command(t, append([]string{"setup"}, relay...)...)
		relay = append([]string{"run"}, append(relay, "--brokers", s.cfg.brokers,
			"--set", "outbox.topic="+s.cfg.topic, "--set", "position_topic=", "--set", "admin.listen=")...)
		start := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				var out strings.Builder
				if code := cli.Main(ctx, relay, nil, &out, &out); code != 0 {
					t.Errorf("the relay ended with %d:\n%s", code, out.String())
				}
			}()
			stop = func() { cancel(); <-ended }
			t.Cleanup(stop)
			return stop
		}

		stop := start()
		s.start(t, nil)
		conn := shopDB.Conn(t)
		var committed, rolledBack []uuid.UUID
		errOutOfStock := errors.New("out of stock")
		for i := range 60 {
			order, fails := uuid.New(), i%3 == 2
			for _, kind := range []string{"OrderPlaced", "OrderPaid"} {
				err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					err := outbox.Write(t.Context(), tx, outbox.Event{
						AggregateType: "order", AggregateID: order.String(), Type: kind,
						Payload: fmt.Appendf(nil, `{"id": %q, "customer": "ann", "cents": 4200}`, order),
					})
					if err == nil && fails {
						err = errOutOfStock
					}
					return err
				})
				if (err != nil) != fails {
					t.Fatal(err)
				}
			}
			if fails {
				rolledBack = append(rolledBack, order)
			} else {
				committed = append(committed, order)
			}
			if i == 30 {
				stop()
				start()
			}
		}
		s.await(t, "all notifications", fmt.Sprintf(`SELECT count(*) >= %d FROM notifications`, 2*len(committed)))
		// All records again, as after a crash of the relay.
		records := s.cluster.ReadAll(t, s.cfg.topic)
		for _, r := range slices.Clone(records) {
			r.Partition, r.Offset = 0, 0
			if err := s.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		last := uuid.New()
		s.produce(t, last, "ann", "OrderPlaced")
		for range 20 { // one more for every partition
			s.produce(t, uuid.New(), "bob", "OrderPlaced")
		}
		s.await(t, "the last notifications", fmt.Sprintf(`SELECT count(*) >= %d FROM notifications`, 2*len(committed)+21))
		s.check(t, last, placed)
		for _, order := range committed {
			s.check(t, order, placed, paid)
		}
		for _, order := range rolledBack {
			s.check(t, order, []string{}...)
		}
	})
}
