package inboxfranz_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz"
)

func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "postgres://notifications@db/notifications")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	processor, err := inbox.NewProcessor(pool, inbox.Config{
		Consumer: "notifications",
		Handlers: map[string]inbox.Handler{"OrderPaid": func(ctx context.Context, tx pgx.Tx, e inbox.Event) error {
			_, err := tx.Exec(ctx, `INSERT INTO letters (order_id, text) VALUES ($1, 'Thank you for paying.')`, string(e.Key))
			return err
		}},
	})
	if err != nil {
		panic(err)
	}
	err = inboxfranz.Run(ctx, processor, "notifications", []string{"outbox.event.order"}, kgo.SeedBrokers("kafka:9092"))
	if err != nil {
		panic(err)
	}
}
