package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// pay marks an order as paid and says so: both happen, or neither.
func pay(ctx context.Context, pool *pgxpool.Pool, order string, cents int) error {
	payload, err := json.Marshal(map[string]any{"order": order, "cents": cents})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// The update locks the row until the transaction ends, so events of one order are
		// written, and published, in the order in which they happened.
		tag, err := tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1 AND status = 'placed'`, order)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("order %s is not waiting for payment", order)
		}
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order",     // topic outbox.event.order
			AggregateID:   order,       // key
			Type:          "OrderPaid", // header eventType
			Payload:       payload,
			Headers:       map[string]string{"source": "checkout"},
		})
	})
}

func ExampleWrite() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pay(ctx, pool, "order-7", 4200); err != nil {
		log.Print(err)
	}
}
