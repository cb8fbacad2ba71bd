package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/pgtest"
	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// An event whose ID the caller knows and can hand on.
func ExampleWrite_id() {
	register := func(ctx context.Context, tx pgx.Tx, customer string) (uuid.UUID, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return uuid.Nil, err
		}
		return id, outbox.Write(ctx, tx, outbox.Event{
			ID: id, AggregateType: "customer", AggregateID: customer, Type: "CustomerRegistered", Payload: []byte(`{}`),
		})
	}
	_ = register
}

// A tombstone: the event of something that is gone, without a value. A compacted topic forgets the
// key.
func ExampleWrite_tombstone() {
	forget := func(ctx context.Context, tx pgx.Tx, customer string) error {
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "customer", AggregateID: customer, Type: "CustomerForgotten",
		})
	}
	_ = forget
}

// A table that came with another tool: its own names, and a payload of bytes.
func ExampleNewWriter() {
	events, err := outbox.NewWriter(outbox.Table{
		Name:        pgx.Identifier{"billing", "OutboxEvent"},
		Columns:     outbox.Columns{AggregateType: "topic", AggregateID: "message_key", Headers: outbox.NoColumn},
		PayloadType: outbox.Bytea,
	})
	if err != nil {
		panic(err)
	}
	send := func(ctx context.Context, tx pgx.Tx, invoice string, avro []byte) error {
		return events.Write(ctx, tx, outbox.Event{
			AggregateType: "invoice", AggregateID: invoice, Type: "InvoiceSent", Payload: avro,
		})
	}
	_ = send
}

func ExampleEventError() {
	var tx pgx.Tx // of a caller who has written something already
	err := outbox.Write(context.Background(), tx,
		outbox.Event{AggregateType: "order", AggregateID: "7", Type: "OrderPaid", Payload: []byte(`{"cents": 4200}`)},
		outbox.Event{AggregateType: "order", AggregateID: "8", Type: "OrderPaid", Payload: []byte(`{"cents": `)},
	)
	fmt.Println(err)
	if problem, ok := errors.AsType[*outbox.EventError](err); ok {
		fmt.Println(problem.Index, problem.Field)
	}
	// Output:
	// outbox: event 1: Payload is not valid JSON
	// 1 Payload
}

func TestExample(t *testing.T) {
	db := database(t, pgtest.Server(t))
	db.Exec(t, `CREATE TABLE orders (id text PRIMARY KEY, status text); INSERT INTO orders VALUES ('order-7', 'placed')`)
	pool := db.Pool(t)
	if err := pay(t.Context(), pool, "order-7", 4200); err != nil {
		t.Fatal(err)
	}
	if err := pay(t.Context(), pool, "order-7", 4200); err == nil {
		t.Error("an order was paid twice")
	}
	if n := len(rows(t, db.Conn(t))); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}
