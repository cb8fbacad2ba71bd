package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// parkOne has a handler panic for order-7 and returns the event that is parked for that; another one
// waits behind it.
func parkOne(ctx context.Context, pool *pgxpool.Pool, schema inbox.Schema) (*inbox.Processor, uuid.UUID) {
	processor := value(inbox.New(pool, inbox.Config{
		Consumer: "mailer", Schema: schema, Delays: []time.Duration{}, // parked at the first failure
		Handlers: map[string]inbox.Handler{"OrderPaid": func(context.Context, pgx.Tx, inbox.Event) error { panic("no such customer") }},
	}))
	first := record(0, "order-7", "OrderPaid", `{}`)
	must(processor.Handle(ctx, first))
	must(processor.Handle(ctx, record(1, "order-7", "OrderPaid", `{}`)))
	return processor, first.ID
}

// inTransaction runs f and commits.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, f func(tx pgx.Tx) error) {
	must(pgx.BeginFunc(ctx, pool, f))
}

func ExampleList() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool, "")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		events, err := inbox.List(ctx, tx, "mailer", 10)
		for _, e := range events {
			fmt.Println(e.Type, string(e.Key), "parked:", !e.ParkedAt.IsZero())
		}
		return err
	})
	// Output:
	// OrderPaid order-7 parked: true
	// OrderPaid order-7 parked: false
}

func ExampleSchema_List() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool, "mail")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		events, err := inbox.Schema("mail").List(ctx, tx, "", 10)
		fmt.Println(len(events))
		return err
	})
	// Output: 2
}

func ExampleListParked() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool, "")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		events, err := inbox.ListParked(ctx, tx, "mailer", 10)
		fmt.Println(len(events))
		return err
	})
	// Output: 1
}

func ExampleSchema_ListParked() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		events, err := inbox.Schema("mail").ListParked(ctx, tx, "mailer", 10)
		fmt.Println(len(events))
		return err
	})
	// Output: 0
}

// What there is to know of an event that waits.
func ExampleWaitingEvent() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool, "")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		events, err := inbox.ListParked(ctx, tx, "mailer", 1)
		for _, e := range events {
			fmt.Println(e.Consumer, e.Offset, "failed attempts:", e.Attempt-1)
			fmt.Println(e.LastError[:len("the handler panicked: no such customer")]) // a stack follows
			fmt.Println(e.ReceivedAt.IsZero(), e.ParkedAt.IsZero(), e.DueAt.IsZero(), e.LeasedUntil.IsZero())
		}
		return err
	})
	// Output:
	// mailer 0 failed attempts: 1
	// the handler panicked: no such customer
	// false false true true
}

// Tried again, by the processors that are running.
func ExampleRetry() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, id := parkOne(ctx, pool, "")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		n, err := inbox.Retry(ctx, tx, "mailer", id) // without ids: all that are parked
		fmt.Println(n)
		return err
	})
	// Output: 1
}

func ExampleSchema_Retry() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	parkOne(ctx, pool, "mail")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		n, err := inbox.Schema("mail").Retry(ctx, tx, "mailer")
		fmt.Println(n)
		return err
	})
	// Output: 1
}

func ExampleDiscard() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, id := parkOne(ctx, pool, "")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		n, err := inbox.Discard(ctx, tx, "mailer", id)
		fmt.Println(n)
		return err
	})
	// Output: 1
}

func ExampleSchema_Discard() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, id := parkOne(ctx, pool, "mail")
	inTransaction(ctx, pool, func(tx pgx.Tx) error {
		n, err := inbox.Schema("mail").Discard(ctx, tx, "mailer", id)
		fmt.Println(n)
		return err
	})
	// Output: 1
}

// Once a day, behind everything that the topics still have.
func ExamplePrune() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	const retention, slack = 7 * 24 * time.Hour, 3 * 24 * time.Hour
	done, err := inbox.Prune(ctx, pool, retention+slack)
	fmt.Println(done.Rows, err)
	// Output: 0 <nil>
}

func ExampleSchema_Prune() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	_, err := inbox.Schema("mail").Prune(ctx, pool, 10*24*time.Hour)
	fmt.Println(err)
	// Output: <nil>
}

func ExamplePruned() {
	done := inbox.Pruned{Rows: 12, Dropped: []string{"public.processed_events_20260101"}, Created: []string{"public.processed_events_20260131"}}
	fmt.Println(done.Rows, done.Dropped, done.Created)
	// Output: 12 [public.processed_events_20260101] [public.processed_events_20260131]
}

// What an adapter does with the records of a partition.
func ExampleProcessor_Handle() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, _ := parkOne(ctx, pool, "")
	err := processor.Handle(ctx, record(0, "order-8", "OrderPaid", `{}`))
	fmt.Println("the offset may be committed:", err == nil) // although the handler has panicked: the event is kept
	// Output: the offset may be committed: true
}

func ExampleProcessor_Run() {
	pool := service(context.Background())
	defer pool.Close()
	processor, _ := parkOne(context.Background(), pool, "")
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond) // or signal.NotifyContext
	defer stop()
	fmt.Println(processor.Run(ctx))
	// Output: <nil>
}

func ExampleProcessor_Stat() {
	ctx := context.Background()
	pool := service(ctx)
	defer pool.Close()
	processor, _ := parkOne(ctx, pool, "")
	s := processor.Stat().Types["OrderPaid"]
	fmt.Println("failures:", s.Failures, "parked:", s.Parked, "behind:", s.Deferred)
	// Output: failures: 1 parked: 1 behind: 1
}

func ExampleStat() {
	s := inbox.Stat{Running: true, CensusAt: time.Now(), Types: map[string]inbox.TypeStat{}}
	fmt.Println("healthy:", s.Running && !s.Full && time.Since(s.CensusAt) < time.Minute)
	// Output: healthy: true
}

func ExampleTypeStat() {
	s := inbox.TypeStat{Handled: 98, Failures: 4, Retries: 3, Duplicates: 2, Deferred: 5, Ignored: 0, Parked: 1}
	fmt.Printf("%d of %d attempts failed\n", s.Failures, s.Failures+s.Handled)
	fmt.Println(s.Duration.Count, s.Age.Count, s.Waiting.Waiting)
	// Output:
	// 4 of 102 attempts failed
	// 0 0 0
}

func ExampleCensus() {
	c := inbox.Census{Waiting: 3, Parked: 1, OldestWaiting: time.Minute, OldestParked: time.Hour}
	fmt.Println(c.Waiting, "wait, for up to", c.OldestWaiting, "and", c.Parked, "parked for", c.OldestParked)
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

// What can be told apart.
func Example_errors() {
	explain := func(err error) string {
		switch {
		case errors.Is(err, inbox.ErrNoTable), errors.Is(err, inbox.ErrOldTable):
			return "outbox-cdc migrate up --only inbox"
		case errors.Is(err, inbox.ErrAborted):
			return "roll back"
		case errors.Is(err, inbox.ErrLeaseLost):
			return "another processor does it"
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
