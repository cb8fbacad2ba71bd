package outbox_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// A table of another tool, with other column names and a payload of bytes.
func ExampleNewWriter() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	run(ctx, pool, `CREATE SCHEMA billing`)
	run(ctx, pool, `CREATE TABLE billing."OutboxEvent" (id uuid PRIMARY KEY, topic varchar(255), message_key varchar(255), type varchar(255), payload bytea)`)

	events, err := outbox.NewWriter(outbox.Config{
		Table:       pgx.Identifier{"billing", "OutboxEvent"},
		Columns:     outbox.Columns{AggregateType: "topic", AggregateID: "message_key", Headers: outbox.NoColumn},
		PayloadType: outbox.Bytea,
	})
	if err != nil {
		panic(err)
	}
	avro := []byte{0x00, 0x00, 0x00, 0x00, 0x2a, 0x02}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return events.Write(ctx, tx, outbox.Event{
			AggregateType: "invoice", AggregateID: "invoice-1", Type: "InvoiceSent", Payload: avro,
		})
	}))
	show(ctx, pool, `SELECT concat_ws(' ', topic, message_key, type, payload) FROM billing."OutboxEvent"`)
	// Output: invoice invoice-1 InvoiceSent \x000000002a02
}

// Add trace headers, and allow records of up to 5 MB for topics with max.message.bytes=5242880.
func ExampleConfig() {
	ctx := context.WithValue(context.Background(), traceKey{}, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	pool := shop(ctx)
	defer pool.Close()
	events, err := outbox.NewWriter(outbox.Config{
		MaxBytes: 5_000_000,
		Trace: func(ctx context.Context) map[string]string {
			// With OpenTelemetry:
			//	headers := propagation.MapCarrier{}
			//	otel.GetTextMapPropagator().Inject(ctx, headers)
			//	return headers
			parent, _ := ctx.Value(traceKey{}).(string)
			return map[string]string{"traceparent": parent}
		},
	})
	if err != nil {
		panic(err)
	}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return events.Write(ctx, tx, outbox.Event{
			AggregateType: "report", AggregateID: "2026-05", Type: "ReportMade", Payload: []string{strings.Repeat("x", 2_000_000)},
		})
	}))
	show(ctx, pool, `SELECT concat_ws(' ', type, length(payload::text), headers) FROM outbox`)
	// Output: ReportMade 2000004 {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
}

// Choose the partition, and store the schema version in a column. The relay needs
// outbox.place: [{column: partition, to: partition}] and outbox.columns.schema_version: version.
func ExampleColumns() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	run(ctx, pool, `ALTER TABLE outbox ADD partition integer, ADD version integer`)
	events, err := outbox.NewWriter(outbox.Config{Columns: outbox.Columns{Partition: "partition", SchemaVersion: "version"}})
	if err != nil {
		panic(err)
	}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return events.Write(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: OrderPaid{Order: "order-7", Cents: 4200},
			Partition: new(int32(3)), SchemaVersion: 2,
		})
	}))
	show(ctx, pool, `SELECT concat_ws(' ', type, 'partition', partition, 'version', version) FROM outbox`)
	// Output: OrderPaid partition 3 version 2
}

// The same document in each column type. jsonb keeps its value, the other types keep its bytes.
func ExamplePayloadType() {
	ctx := context.Background()
	document := []byte(`{"cents":4200, "cents":4.20e1}`)
	for _, kind := range []outbox.PayloadType{outbox.JSONB, outbox.JSON, outbox.Text, outbox.Bytea} {
		pool := shop(ctx)
		run(ctx, pool, `DROP TABLE outbox`)
		run(ctx, pool, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload `+string(kind)+`, headers jsonb)`)
		events, err := outbox.NewWriter(outbox.Config{PayloadType: kind})
		if err != nil {
			panic(err)
		}
		must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return events.Write(ctx, tx, outbox.Event{AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: document})
		}))
		show(ctx, pool, `SELECT payload::text FROM outbox`)
		pool.Close()
	}
	// Output:
	// {"cents": 42.0}
	// {"cents":4200, "cents":4.20e1}
	// {"cents":4200, "cents":4.20e1}
	// \x7b2263656e7473223a343230302c202263656e7473223a342e323065317d
}

// One Writer writes rows and messages.
func ExampleWriter() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	events, err := outbox.NewWriter(outbox.Config{MessagePrefix: "shop"})
	if err != nil {
		panic(err)
	}
	paid := outbox.Event{AggregateType: "order", AggregateID: "order-7", Type: "OrderPaid", Payload: OrderPaid{Order: "order-7", Cents: 4200}}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return events.Write(ctx, tx, paid) }))
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return events.WriteMessage(ctx, tx, paid) }))
	printRows(ctx, pool)
	printMessages(ctx, pool)
	// Output:
	// order order-7 OrderPaid {"cents": 4200, "order": "order-7"}
	// shop: {"id":…,"aggregatetype":"order","aggregateid":"order-7","type":"OrderPaid","payload":{"order":"order-7","cents":4200}}
}

// Write many events with one statement.
func ExampleWriter_Write() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	events, err := outbox.NewWriter(outbox.Config{Table: pgx.Identifier{"public", "outbox"}})
	if err != nil {
		panic(err)
	}
	expired := make([]outbox.Event, 1000)
	for i := range expired {
		expired[i] = outbox.Event{AggregateType: "cart", AggregateID: fmt.Sprintf("cart-%d", i), Type: "CartExpired", Payload: struct{}{}}
	}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return events.Write(ctx, tx, expired...) }))
	show(ctx, pool, `SELECT concat_ws(' ', count(*), 'events, the last of', max(aggregateid)) FROM outbox`)
	// Output: 1000 events, the last of cart-999
}

func ExampleWriter_WriteSQL() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	events, err := outbox.NewWriter(outbox.Config{Table: pgx.Identifier{"public", "outbox"}})
	if err != nil {
		panic(err)
	}
	tx := value(db.BeginTx(ctx, nil))
	must(events.WriteSQL(ctx, tx, outbox.Event{AggregateType: "cart", AggregateID: "cart-1", Type: "CartExpired", Payload: struct{}{}}))
	must(tx.Commit())
	printRows(ctx, pool)
	// Output: cart cart-1 CartExpired {}
}

func ExampleWriter_WriteMessage() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	events, err := outbox.NewWriter(outbox.Config{MessagePrefix: "carts"})
	if err != nil {
		panic(err)
	}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return events.WriteMessage(ctx, tx, outbox.Event{AggregateType: "cart", AggregateID: "cart-1", Type: "CartExpired", Payload: struct{}{}})
	}))
	printMessages(ctx, pool)
	// Output: carts: {"id":…,"aggregatetype":"cart","aggregateid":"cart-1","type":"CartExpired","payload":{}}
}

func ExampleWriter_WriteMessageSQL() {
	ctx := context.Background()
	pool := shop(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	events, err := outbox.NewWriter(outbox.Config{MessagePrefix: "carts"})
	if err != nil {
		panic(err)
	}
	tx := value(db.BeginTx(ctx, nil))
	must(events.WriteMessageSQL(ctx, tx, outbox.Event{AggregateType: "cart", AggregateID: "cart-1", Type: "CartExpired", Tombstone: true}))
	must(tx.Commit())
	printMessages(ctx, pool)
	// Output: carts: {"id":…,"aggregatetype":"cart","aggregateid":"cart-1","type":"CartExpired","payload":null}
}
