// Command orders is a small HTTP service that does what a service with an outbox does: every change
// of an order and the event about it are written in one transaction, and nothing else is told to
// anybody.
//
//	outbox-cdc migrate up --dsn "$DATABASE_URL"
//	go run ./examples/orders
//	curl -H 'Idempotency-Key: 1' -d '{"customer": "ann", "cents": 4200}' http://127.0.0.1:8080/orders
//
// A client that gets no answer repeats its request, with the same key: whatever happened to the
// first one, there is one order and one event. SIGTERM lets requests that are running finish.
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

// grace is how long requests that are running may go on after SIGTERM.
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
	dsn := flags.String("dsn", os.Getenv("DATABASE_URL"), "the database; default: $DATABASE_URL") //nolint:forbidigo // main
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

// serve answers requests until ctx is done, and then those that have begun.
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
