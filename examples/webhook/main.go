// Command webhook is an example of a service that receives events over HTTP. It verifies the signature of each request, and
// writes one notification for each event, even if the relay sends an event again.
//
//	outbox-cdc migrate up --only inbox --dsn "$DATABASE_URL"
//	go run . -secrets /run/secrets/webhook-signing
//	outbox-cdc run --dsn "$ORDERS_DSN" --set sink.webhook.url=http://127.0.0.1:8090/events --set sink.webhook.signing_secrets_file=/run/secrets/webhook-signing
//
// It is a module of its own, so that the relay does not depend on the library of Standard Webhooks.
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
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// grace is how long running requests may continue after SIGTERM.
const grace = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dsn := flags.String("dsn", os.Getenv("DATABASE_URL"), "connection string of the database (default $DATABASE_URL)")
	listen := flags.String("listen", "127.0.0.1:8090", "where to serve")
	file := flags.String("secrets", "", "file with the signing secrets, one a line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	content, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("read the signing secrets: %w", err)
	}
	pool, err := pgxpool.New(ctx, *dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	handler, err := newReceiver(ctx, pool, strings.Fields(string(content)), log)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- server.Shutdown(limited)
	}()
	log.Info("serving", "addr", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
