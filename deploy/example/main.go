// Command example is a service that places orders, and writes an event for each in the same
// transaction. compose.yaml runs it beside the relay; use it as a starting point.
//
// DATABASE_URL names its database, which must have the outbox table. It places an order every
// half second until SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

const interval = 500 * time.Millisecond

func main() {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main
	err := run(ctx, os.Getenv("DATABASE_URL"), log)                                        //nolint:forbidigo // main
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("ended", slog.Any("err", err))
		os.Exit(1) //nolint:forbidigo // main
	}
}

func run(ctx context.Context, dsn string, log *slog.Logger) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS orders (
			id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			cents  integer NOT NULL,
			placed timestamptz NOT NULL DEFAULT now()
		)`); err != nil {
		return fmt.Errorf("create orders: %w", err)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		order, err := place(ctx, pool, 100+n%900)
		if err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
		log.InfoContext(ctx, "placed", slog.Int64("order", order))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// place inserts an order and the event that it was placed: both are there after the commit, or
// neither.
func place(ctx context.Context, pool *pgxpool.Pool, cents int) (order int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `INSERT INTO orders (cents) VALUES ($1) RETURNING id`, cents).Scan(&order); err != nil {
			return err
		}
		payload, err := json.Marshal(map[string]any{"order": order, "cents": cents})
		if err != nil {
			return err
		}
		return outbox.Write(ctx, tx, outbox.Event{
			AggregateType: "order", AggregateID: strconv.FormatInt(order, 10), Type: "OrderPlaced", Payload: payload,
		})
	})
	return order, err
}
