// Command notifications is an example of a service that consumes events. For each event of an order it
// writes one notification for the customer, even if records are delivered again, the process is killed or
// the group rebalances. It parks an event that it cannot process, and the later events of the order wait
// behind it. List and retry them with outbox-cdc inbox.
//
//	outbox-cdc migrate up --only inbox --dsn "$DATABASE_URL"
//	go run ./examples/notifications -brokers localhost:9092
//
// The events are those of examples/orders. After SIGTERM running handlers finish.
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxprom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "notifications:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

// A config has the values of the flags.
type config struct{ dsn, brokers, topic, group, metrics string }

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var cfg config
	flags := flag.NewFlagSet("notifications", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.dsn, "dsn", os.Getenv("DATABASE_URL"), "connection string of the database (default $DATABASE_URL)") //nolint:forbidigo // main
	flags.StringVar(&cfg.brokers, "brokers", "localhost:9092", "addresses of brokers, separated by commas")
	flags.StringVar(&cfg.topic, "topic", "outbox.event.order", "topic of the order events")
	flags.StringVar(&cfg.group, "group", consumer, "consumer group")
	flags.StringVar(&cfg.metrics, "metrics", "127.0.0.1:9188", "address of the metrics server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return serve(ctx, cfg, inbox.Config{
		Consumer: consumer, Handlers: handlers(), Logger: slog.New(slog.NewTextHandler(stderr, nil)),
	})
}

// serve handles events until ctx is done.
func serve(ctx context.Context, cfg config, processing inbox.Config) error {
	pool, err := pgxpool.New(ctx, cfg.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	if err := createTable(ctx, pool); err != nil {
		return err
	}
	processor, err := inbox.NewProcessor(pool, processing)
	if err != nil {
		return err
	}
	stopMetrics, err := serveMetrics(ctx, cfg.metrics, processor)
	if err != nil {
		return err
	}
	defer stopMetrics()
	return inboxfranz.Run(ctx, processor, cfg.group, []string{cfg.topic}, kgo.SeedBrokers(strings.Split(cfg.brokers, ",")...),
		kgo.SessionTimeout(10*time.Second)) // after this time the others get the partitions of a killed instance
}

// serveMetrics serves /metrics until stop is called.
func serveMetrics(ctx context.Context, address string, processor *inbox.Processor) (stop func(), err error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(inboxprom.New(processor, consumer))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() { // stop waits for it
		defer close(ended)
		_ = server.Serve(listener) // until stop closes it
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
