package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// Set the ID yourself if you need to know it.
func ExampleWrite_id() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	register := func(tx pgx.Tx, customer string) (uuid.UUID, error) {
		id, err := uuid.NewV7()
		if err != nil {
			return uuid.Nil, err
		}
		return id, outbox.Write(ctx, tx, outbox.Event{
			ID: id, AggregateType: "customer", AggregateID: customer, Type: "CustomerRegistered", Payload: []byte(`{}`),
		})
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		id, err := register(tx, "ann")
		fmt.Println("version", int(id.Version()))
		return err
	})
	fmt.Println(err)
	printRows(ctx, pool)
	// Output:
	// version 7
	// <nil>
	// customer ann CustomerRegistered {}
}

// A string or []byte that is JSON already is used as it is.
func ExampleWrite_json() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: `{"cents": 4200}`,
		})
	}))
	printRows(ctx, pool)
	// Output: order order-7 OrderPaid {"cents": 4200}
}

// A tombstone has no value. A compacted topic deletes its key.
func ExampleWrite_tombstone() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "customer", AggregateID: "ann", Type: "CustomerForgotten", Tombstone: true,
		})
	}))
	printRows(ctx, pool)
	// Output: customer ann CustomerForgotten NULL
}

// Errors that you can fix.
func ExampleWrite_errors() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	e := outbox.Event{AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: OrderPaid{Order: "order-7", Cents: 4200}}
	for _, before := range []string{`DROP TABLE outbox`, `ALTER TABLE outbox DROP COLUMN headers`, `SELECT 1/0`} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, before)
			return outbox.Write(ctx, tx, e)
		})
		fmt.Println(errors.Is(err, outbox.ErrNoTable), errors.Is(err, outbox.ErrOldTable), errors.Is(err, outbox.ErrAborted))
	}
	// Output:
	// true false false
	// false true false
	// false false true
}

// Write an event with database/sql.
func ExampleWriteSQL() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool) // or sql.Open
	defer db.Close()
	pay := func(order string, cents int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, order); err != nil {
			return err
		}
		if err := outbox.WriteSQL(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: order, Type: "OrderPaid", Payload: OrderPaid{Order: order, Cents: cents},
		}); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(pay("order-7", 4200))
	printRows(ctx, pool)
	// Output:
	// <nil>
	// order order-7 OrderPaid {"cents": 4200, "order": "order-7"}
}

// Write an event without a table. The relay needs outbox.messages: [outbox].
func ExampleWriteMessage() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.WriteMessage(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: OrderPaid{Order: "order-7", Cents: 4200},
		})
	}))
	printMessages(ctx, pool)
	// Output: outbox: {"id":…,"aggregatetype":"order","aggregateid":"order-7","type":"OrderPaid","payload":{"order":"order-7","cents":4200}}
}

func ExampleWriteMessageSQL() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx := value(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}))
	must(outbox.WriteMessageSQL(ctx, tx, outbox.Event{
		AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: json.RawMessage(`{"cents": 4200}`),
	}))
	must(tx.Commit())
	printMessages(ctx, pool)
	// Output: outbox: {"id":…,"aggregatetype":"order","aggregateid":"order-7","type":"OrderPaid","payload":{"cents": 4200}}
}

// An event with headers, a content type and a schema version.
func ExampleEvent() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order",
			AggregateID:   "order-7",
			Type:          "OrderPaid",
			Payload:       OrderPaid{Order: "order-7", Cents: 4200},
			Headers:       map[string]string{"source": "checkout"},
			ContentType:   "application/json",
			SchemaVersion: 2,
		})
	}))
	printRows(ctx, pool)
	// Output: order order-7 OrderPaid {"cents": 4200, "order": "order-7"} {"source": "checkout", "content-type": "application/json", "schemaVersion": "2"}
}

// A CloudEvent.
func ExampleCloudEvent() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return outbox.Write(ctx, tx, outbox.Event{
			ID:            uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"),
			AggregateType: "order",
			AggregateID:   "order-7",
			Type:          "com.example.order.paid",
			Payload:       OrderPaid{Order: "order-7", Cents: 4200},
			CloudEvent: &outbox.CloudEvent{
				Source:     "https://shop.example/orders",
				Subject:    "order-7",
				Time:       time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC),
				DataSchema: "https://shop.example/schemas/order-paid/2",
				Extensions: map[string]string{"tenant": "north"},
			},
		})
	}))
	show(ctx, pool, `SELECT key || ': ' || value FROM outbox, jsonb_each_text(headers) ORDER BY key`)
	// Output:
	// ce_dataschema: https://shop.example/schemas/order-paid/2
	// ce_id: 01890a5d-ac96-774b-bcce-b302099a8057
	// ce_source: https://shop.example/orders
	// ce_specversion: 1.0
	// ce_subject: order-7
	// ce_tenant: north
	// ce_time: 2026-05-01T12:30:00Z
	// ce_type: com.example.order.paid
	// content-type: application/json
}

// The error names the event and the field.
func ExampleEventError() {
	var tx pgx.Tx // of a caller who has written something already
	err := outbox.Write(context.Background(), tx,
		outbox.Event{AggregateType: "order", AggregateID: "7", Type: "OrderPaid", Payload: []byte(`{"cents": 4200}`)},
		outbox.Event{AggregateType: "order", AggregateID: "8", Type: "OrderPaid", Payload: math.NaN()},
	)
	fmt.Println(err)
	if problem, ok := errors.AsType[*outbox.EventError](err); ok {
		fmt.Println(problem.Index, problem.Field, problem.Reason)
		fmt.Println(problem.Err)
	}
	// Output:
	// outbox: event 1: Payload of type float64 cannot be marshaled: json: unsupported value: NaN
	// 1 Payload of type float64 cannot be marshaled: json: unsupported value: NaN
	// json: unsupported value: NaN
}
