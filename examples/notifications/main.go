// Command notifications is an example of a service that consumes events. For each event of an order it
// writes one notification for the customer, even if records are delivered again, the process is killed or
// the group rebalances. It parks an event that it cannot process, and the later events of the order wait
// behind it. List and retry them with outbox-cdc inbox.
//
//	outbox-cdc migrate up --only inbox --dsn "$DATABASE_URL"
//	go run ./examples/notifications -brokers localhost:9092
//
// It creates its table of notifications, so the role in DATABASE_URL owns the schema. A service whose tables exist needs only the rights of
// notification_service in docs/roles.md, and those on its own tables.
//
// Brokers other than Kafka have a URL:
//
//	go run ./examples/notifications -brokers nats://localhost:4222
//	go run ./examples/notifications -brokers amqp://localhost:5672
//	go run ./examples/notifications -brokers redis://localhost:6379
//	go run ./examples/notifications -brokers https://sqs.eu-central-1.amazonaws.com/123456789012/outbox_event_order.fifo
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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outbox-cdc/outbox-cdc/inbox"
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
type config struct{ dsn, brokers, topic, group, stream, metrics string }

func run(ctx context.Context, args []string, stderr io.Writer) error {
	var cfg config
	flags := flag.NewFlagSet("notifications", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.dsn, "dsn", os.Getenv("DATABASE_URL"), "connection string of the database (default $DATABASE_URL)") //nolint:forbidigo // main
	flags.StringVar(&cfg.brokers, "brokers", "localhost:9092", "addresses of Kafka brokers, separated by commas, or the URL of another broker: nats://, amqp:// or redis://, or the URL of a queue of SQS")
	flags.StringVar(&cfg.topic, "topic", "outbox.event.order", "topic of the order events: a subject of NATS, an exchange of RabbitMQ, or a stream of Redis (SQS: -brokers says it)")
	flags.StringVar(&cfg.group, "group", consumer, "consumer group, durable consumer of NATS, or queue of RabbitMQ")
	flags.StringVar(&cfg.stream, "stream", "OUTBOX", "stream of NATS that has the subject")
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
	return consume(ctx, processor, cfg)
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
