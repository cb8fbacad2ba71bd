package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// A consumer with a loop of its own: the claim and the effect are one transaction.
func ExampleClaim() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	eventID := uuid.MustParse("0199a3c1-7a00-7000-8000-000000000001") // header id of the record
	for range 3 {                                                     // it is delivered three times
		must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			fresh, err := inbox.Claim(ctx, tx, "mailer", eventID)
			if err != nil || !fresh {
				return err
			}
			return mail(ctx, tx, "ann", "Thank you for paying.")
		}))
	}
	printMails(ctx, pool)
	// Output: ann: Thank you for paying.
}

// The same for database/sql, and for what is built on it.
func ExampleClaimSQL() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	handle := func(eventID uuid.UUID) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		fresh, err := inbox.ClaimSQL(ctx, tx, "mailer", eventID)
		if err != nil || !fresh {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO mails (recipient, message) VALUES ('ann', 'Hello.')`); err != nil {
			return err
		}
		return tx.Commit()
	}
	eventID := uuid.New()
	must(handle(eventID))
	must(handle(eventID))
	printMails(ctx, pool)
	// Output: ann: Hello.
}

// Tables that are in a schema of their own, which the search_path does not have.
func ExampleSchema() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	tables := inbox.Schema("mail")
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		fmt.Println(tables.List(ctx, tx, "mailer", 10))
		return nil
	}))
	// Output: [] <nil>
}

func ExampleSchema_Claim() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		fresh, err := inbox.Schema("mail").Claim(ctx, tx, "mailer", uuid.New())
		fmt.Println(fresh)
		return err
	}))
	// Output: true
}

func ExampleSchema_ClaimSQL() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx := value(db.BeginTx(ctx, &sql.TxOptions{}))
	fmt.Println(inbox.Schema("mail").ClaimSQL(ctx, tx, "mailer", uuid.New()))
	must(tx.Commit())
	// Output: true <nil>
}

// A processor: a handler for each type of event, retries, and one effect for each event.
func ExampleProcessor() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, err := inbox.New(pool, inbox.Config{
		Consumer: "mailer",
		Handlers: map[string]inbox.Handler{
			"OrderPaid": inbox.JSON(func(ctx context.Context, tx pgx.Tx, _ inbox.Event, paid struct{ Customer string }) error {
				return mail(ctx, tx, paid.Customer, "Thank you for paying.")
			}),
		},
	})
	if err != nil {
		panic(err)
	}
	// An adapter does this: see inboxsarama.Run and inboxfranz.Run.
	paid := record(0, "order-7", "OrderPaid", `{"customer": "ann"}`)
	for range 2 {
		must(processor.Handle(ctx, paid))
	}
	printMails(ctx, pool)
	fmt.Println("duplicates:", processor.Stat().Types["OrderPaid"].Duplicates)
	// Output:
	// ann: Thank you for paying.
	// duplicates: 1
}

// All settings, with what they are without being set.
func ExampleConfig() {
	_, err := inbox.New(nil, inbox.Config{
		Consumer:   "mailer",
		Handlers:   map[string]inbox.Handler{},
		Unknown:    inbox.Park,
		Schema:     "",
		Delays:     []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
		Timeout:    30 * time.Second,
		Grace:      10 * time.Second,
		Workers:    4,
		Lease:      30 * time.Second,
		Poll:       time.Second,
		MaxWaiting: 100_000,
		Log:        slog.New(slog.DiscardHandler),
	})
	fmt.Println(err)
	// Output: inbox: Config.Handlers: there is none
}

func ExampleNew() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, err := inbox.New(pool, inbox.Config{Handlers: map[string]inbox.Handler{}})
	fmt.Println(err)
	// Output: inbox: the consumer's name is empty
}

// Any pool of connections will do that gives out pgx's transactions, a connection too where nothing
// runs beside it.
func ExampleDB() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	var db inbox.DB = pool
	tx := value(db.BeginTx(ctx, pgx.TxOptions{}))
	fmt.Println(tx.Rollback(ctx))
	// Output: <nil>
}

// A topic has more types than this service has handlers for.
func ExamplePolicy() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	nothing := func(context.Context, pgx.Tx, inbox.Event) error { return nil }
	processor := value(inbox.New(pool, inbox.Config{
		Consumer: "mailer", Handlers: map[string]inbox.Handler{"OrderPaid": nothing}, Unknown: inbox.Ignore,
	}))
	must(processor.Handle(ctx, record(0, "order-7", "OrderPacked", `{}`)))
	fmt.Println("ignored:", processor.Stat().Types[""].Ignored)
	// Output: ignored: 1
}

// What a handler gets.
func ExampleHandler() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	var show inbox.Handler = func(_ context.Context, _ pgx.Tx, e inbox.Event) error {
		fmt.Printf("%s of %s, attempt %d: %s\n", e.Type, e.Key, e.Attempt, e.Payload)
		return nil
	}
	processor := value(inbox.New(pool, inbox.Config{Consumer: "mailer", Handlers: map[string]inbox.Handler{"OrderPaid": show}}))
	must(processor.Handle(ctx, record(0, "order-7", "OrderPaid", `{"customer": "ann"}`)))
	// Output: OrderPaid of order-7, attempt 1: {"customer": "ann"}
}

func ExampleJSON() {
	type order struct{ Customer string }
	handler := inbox.JSON(func(_ context.Context, _ pgx.Tx, _ inbox.Event, o order) error {
		fmt.Printf("%q\n", o.Customer)
		return nil
	})
	ctx := context.Background()
	must(handler(ctx, nil, record(0, "order-7", "OrderPaid", `{"customer": "ann"}`)))
	must(handler(ctx, nil, inbox.Event{Type: "OrderForgotten"})) // a tombstone
	fmt.Println(handler(ctx, nil, record(0, "order-7", "OrderPaid", `{`)))
	// Output:
	// "ann"
	// ""
	// decode the payload: unexpected end of JSON input
}

// An event of a record that is not the relay's.
func ExampleEvent() {
	e := inbox.Event{
		ID:        uuid.NewSHA1(uuid.NameSpaceURL, []byte("legacy[3]@17")), // the same whenever it comes
		Type:      "InvoiceSent",
		Topic:     "legacy",
		Partition: 3,
		Offset:    17,
		Key:       []byte("invoice-9"),
		Payload:   []byte(`<invoice/>`),
		Headers:   []inbox.Header{{Name: "source", Value: []byte("billing")}},
		Time:      time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC),
	}
	fmt.Println(e.Type, string(e.Key))
	// Output: InvoiceSent invoice-9
}

func ExampleHeader() {
	e := inbox.Event{Headers: []inbox.Header{{Name: "traceparent", Value: []byte("00-…-01")}}}
	for _, h := range e.Headers {
		fmt.Printf("%s: %s\n", h.Name, h.Value)
	}
	// Output: traceparent: 00-…-01
}

func ExampleEvent_Header() {
	e := inbox.Event{Headers: []inbox.Header{{Name: "source", Value: []byte("checkout")}}}
	fmt.Printf("%s, %t\n", e.Header("source"), e.Header("other") == nil)
	// Output: checkout, true
}

func ExampleEvent_ParseRecord() {
	e := inbox.Event{Topic: "outbox.event.order"}
	err := e.ParseRecord([]inbox.Header{
		{Name: "id", Value: []byte("0199a3c1-7a00-7000-8000-000000000001")}, {Name: "eventType", Value: []byte("OrderPaid")},
	})
	fmt.Println(e.ID, e.Type, err)
	// Output: 0199a3c1-7a00-7000-8000-000000000001 OrderPaid <nil>
}

func ExampleEventError() {
	e := inbox.Event{Topic: "outbox.event.order", Partition: 3, Offset: 17}
	err := e.ParseRecord(nil)
	fmt.Println(err)
	if problem, ok := errors.AsType[*inbox.EventError](err); ok {
		fmt.Println(problem.Topic, problem.Partition, problem.Offset, problem.Reason)
	}
	// Output:
	// inbox: outbox.event.order[3] at offset 17: the record has no header id
	// outbox.event.order 3 17 the record has no header id
}
