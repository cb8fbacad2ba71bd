package outbox_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// An OrderPaid is the payload of the event.
type OrderPaid struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// pay marks an order as paid and writes an event, or does neither.
func pay(ctx context.Context, pool *pgxpool.Pool, order string, cents int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// The update locks the row until the transaction ends. So the events of one order are
		// published in the order of its changes.
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
			Payload:       OrderPaid{Order: order, Cents: cents},
			Headers:       map[string]string{"source": "checkout"},
		})
	})
}

func ExampleWrite() {
	ctx := context.Background()
	pool := shop(ctx) // a *pgxpool.Pool
	defer pool.Close()
	fmt.Println(pay(ctx, pool, "order-7", 4200))
	fmt.Println(pay(ctx, pool, "order-7", 4200)) // rolled back with its event
	printRows(ctx, pool)
	// Output:
	// <nil>
	// order order-7 is not waiting for payment
	// order order-7 OrderPaid {"cents": 4200, "order": "order-7"} {"source": "checkout"}
}
