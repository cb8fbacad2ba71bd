package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// parkOne parks an event of order-7, by a handler that panics, and returns its id. Another event of
// order-7 waits until the first one is handled.
func parkOne(ctx context.Context, pool *pgxpool.Pool) (*inbox.Processor, uuid.UUID) {
	processor := value(inbox.NewProcessor(pool, inbox.Config{
		Consumer: "mailer", RetryDelays: []time.Duration{}, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]inbox.Handler{"OrderPaid": func(context.Context, pgx.Tx, inbox.Event) error { panic("no such customer") }},
	}))
	first := record(0, "order-7", "OrderPaid", `{}`)
	must(processor.Handle(ctx, first))
	must(processor.Handle(ctx, record(1, "order-7", "OrderPaid", `{}`)))
	return processor, first.ID
}

func ExampleStore_List() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool)
	for _, e := range value(inbox.Store{}.List(ctx, pool, "mailer", 10)) {
		fmt.Println(e.Type, string(e.Key), "parked:", !e.ParkedAt.IsZero())
	}
	// Output:
	// OrderPaid order-7 parked: true
	// OrderPaid order-7 parked: false
}

func ExampleStore_ListParked() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool)
	fmt.Println(len(value(inbox.Store{}.ListParked(ctx, pool, "mailer", 10))))
	// Output: 1
}

func ExampleWaitingEvent() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool)
	for _, e := range value(inbox.Store{}.ListParked(ctx, pool, "mailer", 1)) {
		fmt.Println(e.Consumer, e.Offset, "failed attempts:", e.Attempt-1)
		fmt.Println(e.LastError[:len("the handler panicked: no such customer")]) // a stack follows
		fmt.Println(e.ReceivedAt.IsZero(), e.ParkedAt.IsZero(), e.DueAt.IsZero(), e.LeasedUntil.IsZero())
	}
	// Output:
	// mailer 0 failed attempts: 1
	// the handler panicked: no such customer
	// false false true true
}

// The running processors retry the event.
func ExampleStore_Retry() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, id := parkOne(ctx, pool)
	fmt.Println(inbox.Store{}.Retry(ctx, pool, "mailer", id))
	fmt.Println(inbox.Store{}.Retry(ctx, pool, "mailer", id)) // it is not parked any more
	// Output:
	// <nil>
	// inbox: retry events: not found: event 8817b75a-d69e-5c06-aa3e-8b9341df661e of consumer "mailer" is not parked; it waits for its next attempt
}

func ExampleStore_RetryAll() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool)
	fmt.Println(inbox.Store{}.RetryAll(ctx, pool, "mailer"))
	// Output: 1 <nil>
}

func ExampleStore_Discard() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, id := parkOne(ctx, pool)
	fmt.Println(inbox.Store{}.Discard(ctx, pool, "mailer", id))
	fmt.Println(errors.Is(inbox.Store{}.Discard(ctx, pool, "mailer", uuid.New()), inbox.ErrNotFound))
	// Output:
	// <nil>
	// true
}

// An address that does not exist now will not exist later.
func ExamplePermanent() {
	handler := func(context.Context, pgx.Tx, inbox.Event) error {
		return inbox.Permanent(errors.New("550 no such mailbox"))
	}
	fmt.Println(handler(context.Background(), nil, inbox.Event{}))
	// Output: 550 no such mailbox
}

// A service answered with 429 Too Many Requests and Retry-After: 60.
func ExampleRetryAfter() {
	handler := func(context.Context, pgx.Tx, inbox.Event) error {
		return inbox.RetryAfter(time.Minute, errors.New("429 Too Many Requests"))
	}
	fmt.Println(handler(context.Background(), nil, inbox.Event{}))
	// Output: 429 Too Many Requests
}

// Failures go to an error tracker.
func ExampleFailure() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor := value(inbox.NewProcessor(pool, inbox.Config{
		Consumer: "mailer", Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]inbox.Handler{"OrderPaid": func(context.Context, pgx.Tx, inbox.Event) error {
			return inbox.RetryAfter(time.Minute, errors.New("the mail server is down"))
		}},
		OnFailure: func(_ context.Context, f inbox.Failure) {
			fmt.Println(f.Event.Type, "attempt", f.Event.Attempt, "parked", f.Parked, "retry in", f.RetryIn, "error:", f.Err)
		},
	}))
	must(processor.Handle(ctx, record(0, "order-7", "OrderPaid", `{}`)))
	// Output: OrderPaid attempt 1 parked false retry in 1m0s error: the mail server is down
}

// Run it once a day.
func ExampleStore_Prune() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	const retention, slack = 7 * 24 * time.Hour, 3 * 24 * time.Hour // of the topics; for lag and waiting
	done, err := inbox.Store{}.Prune(ctx, pool, max(retention+slack, inbox.MinPruneAge))
	fmt.Println(done.Rows, err)
	// Output: 0 <nil>
}

func ExamplePruned() {
	done := inbox.Pruned{Rows: 12, Dropped: []string{"public.processed_events_20260101"}, Created: []string{"public.processed_events_20260131"}}
	fmt.Println(done.Rows, done.Dropped, done.Created)
	// Output: 12 [public.processed_events_20260101] [public.processed_events_20260131]
}

// An adapter calls Handle for each record of a partition.
func ExampleProcessor_Handle() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, _ := parkOne(ctx, pool)
	err := processor.Handle(ctx, record(0, "order-8", "OrderPaid", `{}`))
	fmt.Println("you may commit the offset:", err == nil) // although the handler panicked: the event is stored
	// Output: you may commit the offset: true
}

func ExampleProcessor_Run() {
	pool := service(context.Background())
	defer pool.Close()
	processor, _ := parkOne(context.Background(), pool)
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond) // or signal.NotifyContext
	defer stop()
	fmt.Println(processor.Run(ctx))
	// Output: <nil>
}

// Adapters log with the processor's logger.
func ExampleProcessor_Logger() {
	processor := value(inbox.NewProcessor(nil, inbox.Config{
		Consumer: "mailer", Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]inbox.Handler{"OrderPaid": func(context.Context, pgx.Tx, inbox.Event) error { return nil }},
	}))
	processor.Logger().Info("joining the consumer group")
	fmt.Println(processor.Logger().Enabled(context.Background(), slog.LevelError))
	// Output: false
}

func ExampleProcessor_Stat() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, _ := parkOne(ctx, pool)
	s := processor.Stat().Types["OrderPaid"]
	fmt.Println("failures:", s.Failures, "parked:", s.Parked, "behind:", s.Deferred)
	// Output: failures: 1 parked: 1 behind: 1
}

func ExampleStat() {
	s := inbox.Stat{Running: true, BacklogAt: time.Now(), Types: map[string]inbox.TypeStat{}}
	fmt.Println("healthy:", s.Running && !s.Full && time.Since(s.BacklogAt) < time.Minute)
	// Output: healthy: true
}

func ExampleTypeStat() {
	s := inbox.TypeStat{Handled: 98, Failures: 4, Retries: 3, Duplicates: 2, Deferred: 5, Ignored: 0, Parked: 1}
	fmt.Printf("%d of %d attempts failed\n", s.Failures, s.Failures+s.Handled)
	fmt.Println(s.Duration.Count, s.Age.Count, s.Backlog.Waiting)
	// Output:
	// 4 of 102 attempts failed
	// 0 0 0
}

func ExampleBacklog() {
	b := inbox.Backlog{Waiting: 3, Parked: 1, OldestWaiting: time.Minute, OldestParked: time.Hour}
	fmt.Println(b.Waiting, "wait, for up to", b.OldestWaiting, "and", b.Parked, "parked for", b.OldestParked)
	// Output: 3 wait, for up to 1m0s and 1 parked for 1h0m0s
}

func ExampleHistogram() {
	h := inbox.Histogram{Count: 4, Sum: 20 * time.Millisecond, Bounds: []time.Duration{time.Millisecond, 10 * time.Millisecond}, Counts: []uint64{1, 4}}
	fmt.Println("mean:", h.Sum/time.Duration(h.Count), "up to", h.Bounds[0], "took", h.Counts[0])
	// Output: mean: 5ms up to 1ms took 1
}

func ExamplePanicError() {
	var err error = &inbox.PanicError{Value: "no such customer", Stack: []byte("goroutine 1 …")}
	if p, ok := errors.AsType[*inbox.PanicError](err); ok {
		fmt.Println(p, len(p.Stack) > 0, p.Value)
	}
	// Output: the handler panicked: no such customer true no such customer
}

func Example_errors() {
	explain := func(err error) string {
		switch {
		case errors.Is(err, inbox.ErrNoTable), errors.Is(err, inbox.ErrOldTable):
			return "outbox-cdc migrate up --only inbox"
		case errors.Is(err, inbox.ErrAborted):
			return "roll back"
		case errors.Is(err, inbox.ErrNotFound):
			return "check the id with outbox-cdc inbox list"
		case errors.Is(err, inbox.ErrLeaseLost):
			return "another processor handles it"
		case errors.Is(err, inbox.ErrUnknownType):
			return "register a handler"
		}
		return "log it"
	}
	fmt.Println(explain(inbox.ErrNoTable))
	fmt.Println(explain(inbox.ErrUnknownType))
	// Output:
	// outbox-cdc migrate up --only inbox
	// register a handler
}
