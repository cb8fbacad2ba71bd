// Command orders is an example of an HTTP service with an outbox. It writes each change of an order and
// its event in one transaction, and has no connection to Kafka.
//
//	outbox-cdc migrate up --dsn "$DATABASE_URL"
//	go run ./examples/orders
//	curl -H 'Idempotency-Key: 1' -d '{"customer": "ann", "cents": 4200}' http://127.0.0.1:8080/orders
//
// A client that gets no response repeats its request with the same key. There is one order and one event
// then, even if the first request succeeded. After SIGTERM running requests finish.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// grace is how long running requests may continue after SIGTERM.
const grace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dsn := flags.String("dsn", os.Getenv("DATABASE_URL"), "connection string of the database (default $DATABASE_URL)") //nolint:forbidigo // main
	listen := flags.String("listen", "127.0.0.1:8080", "where to serve")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))

	pool, err := pgxpool.New(ctx, *dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	orders := &orders{pool: pool}
	if err := orders.createTable(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.InfoContext(ctx, "serving", slog.String("addr", listener.Addr().String()))
	return serve(ctx, listener, newHandler(orders, log))
}

// serve serves requests until ctx is done. Then it waits for running requests.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }() // until Shutdown
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return fmt.Errorf("requests were still running after %s: %w", grace, err)
	}
	return nil
}
