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

// A consumer with its own loop writes the claim and the effect in one transaction.
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

// The same with database/sql, and with libraries that use it.
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

// Tables in a schema that is not in the search_path.
func ExampleStore() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	store := inbox.Store{Schema: "mail"}
	fmt.Println(store.List(ctx, pool, "mailer", 10))
	// Output: [] <nil>
}

func ExampleStore_Claim() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	store := inbox.Store{Schema: "mail"}
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		fresh, err := store.Claim(ctx, tx, "mailer", uuid.New())
		fmt.Println(fresh)
		return err
	}))
	// Output: true
}

func ExampleStore_ClaimSQL() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx := value(db.BeginTx(ctx, &sql.TxOptions{}))
	store := inbox.Store{Schema: "mail"}
	fmt.Println(store.ClaimSQL(ctx, tx, "mailer", uuid.New()))
	must(tx.Commit())
	// Output: true <nil>
}

// A processor has a handler for each event type, and handles each event once.
func ExampleProcessor() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, err := inbox.NewProcessor(pool, inbox.Config{
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
	// An adapter calls Handle: see inboxsarama.Run and inboxfranz.Run.
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

// All settings with their defaults.
func ExampleConfig() {
	_, err := inbox.NewProcessor(nil, inbox.Config{
		Consumer:      "mailer",
		Handlers:      map[string]inbox.Handler{},
		OnUnknownType: inbox.ParkUnknown,
		ParseEvent:    (*inbox.Event).ParseHeaders,
		Schema:        "", // the search_path
		RetryDelays:   []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
		Timeout:       30 * time.Second,
		Grace:         10 * time.Second,
		Workers:       4,
		LeaseDuration: 30 * time.Second,
		PollInterval:  time.Second,
		MaxWaiting:    100_000,
		OnFailure:     func(context.Context, inbox.Failure) {},
		Logger:        slog.Default(),
	})
	fmt.Println(err)
	// Output: inbox: Config.Handlers is empty
}

func ExampleNewProcessor() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, err := inbox.NewProcessor(pool, inbox.Config{Handlers: map[string]inbox.Handler{}})
	fmt.Println(err)
	// Output: inbox: the consumer's name is empty
}

// A *pgxpool.Pool is a DB. So is a *pgx.Conn, for a Store.
func ExampleDB() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	var db inbox.DB = pool
	tx := value(db.BeginTx(ctx, pgx.TxOptions{}))
	fmt.Println(tx.Rollback(ctx))
	// Output: <nil>
}

// The topic has event types that this service does not need.
func ExampleUnknownTypePolicy() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	nothing := func(context.Context, pgx.Tx, inbox.Event) error { return nil }
	processor := value(inbox.NewProcessor(pool, inbox.Config{
		Consumer: "mailer", Handlers: map[string]inbox.Handler{"OrderPaid": nothing}, OnUnknownType: inbox.IgnoreUnknown,
	}))
	must(processor.Handle(ctx, record(0, "order-7", "OrderPacked", `{}`)))
	fmt.Println("ignored:", processor.Stat().Types[""].Ignored)
	// Output: ignored: 1
}

// A handler that prints its event.
func ExampleHandler() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	var show inbox.Handler = func(_ context.Context, _ pgx.Tx, e inbox.Event) error {
		fmt.Printf("%s of %s, attempt %d: %s\n", e.Type, e.Key, e.Attempt, e.Payload)
		return nil
	}
	processor := value(inbox.NewProcessor(pool, inbox.Config{Consumer: "mailer", Handlers: map[string]inbox.Handler{"OrderPaid": show}}))
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

// Records that are not from the relay need an ID that is the same at each delivery.
func ExampleEvent() {
	parse := func(e *inbox.Event) error {
		e.ID = uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "%s[%d]@%d", e.Topic, e.Partition, e.Offset))
		e.Type = "InvoiceSent"
		return nil
	}
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor := value(inbox.NewProcessor(pool, inbox.Config{
		Consumer: "mailer", ParseEvent: parse,
		Handlers: map[string]inbox.Handler{"InvoiceSent": func(_ context.Context, _ pgx.Tx, e inbox.Event) error {
			fmt.Println(e.Type, string(e.Key), e.ID)
			return nil
		}},
	}))
	must(processor.Handle(ctx, inbox.Event{
		Topic: "legacy", Partition: 3, Offset: 17, Time: time.Now(), Key: []byte("invoice-9"), Payload: []byte(`<invoice/>`),
	}))
	// Output: InvoiceSent invoice-9 1f9fd8a6-94b6-5376-9529-1894e34d801e
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

func ExampleEvent_ParseHeaders() {
	e := inbox.Event{Topic: "outbox.event.order", Headers: []inbox.Header{
		{Name: "id", Value: []byte("0199a3c1-7a00-7000-8000-000000000001")}, {Name: "eventType", Value: []byte("OrderPaid")},
	}}
	err := e.ParseHeaders()
	fmt.Println(e.ID, e.Type, err)
	// Output: 0199a3c1-7a00-7000-8000-000000000001 OrderPaid <nil>
}

func ExampleEventError() {
	e := inbox.Event{Topic: "outbox.event.order", Partition: 3, Offset: 17}
	err := e.ParseHeaders()
	fmt.Println(err)
	if problem, ok := errors.AsType[*inbox.EventError](err); ok {
		fmt.Println(problem.Topic, problem.Partition, problem.Offset, problem.Reason)
	}
	// Output:
	// inbox: outbox.event.order[3] at offset 17: the record has no header id
	// outbox.event.order 3 17 the record has no header id
}
