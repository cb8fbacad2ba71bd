package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const topic = "outbox.event.order"

func TestWithRabbitMQ(t *testing.T) {
	t.Parallel()
	server := rabbittest.Real(t)
	vhost := server.VHostName(t)
	conn, err := amqp.Dial(server.URL(vhost))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := channel.ExchangeDeclare(topic, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	bound := func() bool {
		return strings.Contains(server.Run(t, "list_bindings", "--vhost", vhost, "--quiet"), topic+"\texchange\t"+consumer)
	}
	withBroker(t, config{brokers: server.URL(vhost)}, bound, "sink.rabbitmq.servers="+server.Addr(), "sink.rabbitmq.vhost="+vhost,
		"sink.rabbitmq.user=guest", "sink.rabbitmq.password=guest")
}

func TestWithRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
	withBroker(t, config{brokers: "redis://" + server.Addr()}, always,
		"sink.redis_streams.addresses="+server.Addr(), "sink.redis_streams.create_streams=true")
}

func always() bool { return true }

// withBroker runs the service and, when ready returns true, the relay with a broker. In the middle both are stopped and
// started again. Each order has its notifications once, in order.
func withBroker(t *testing.T, cfg config, ready func() bool, settings ...string) {
	t.Helper()
	s := &shop{db: pgtest.Database(t), cfg: cfg}
	command(t, "migrate", "up", "--only", "inbox", "--dsn", s.db.DSN)
	s.cfg.dsn, s.cfg.topic, s.cfg.group, s.cfg.stream, s.cfg.metrics = s.db.DSN, cmp.Or(cfg.topic, topic), consumer, "OUTBOX", "127.0.0.1:0"

	shopDB := pgtest.Database(t)
	relay := []string{"--dsn", shopDB.DSN, "--publication", "orders", "--slot", shopDB.Name}
	command(t, "migrate", "up", "--only", "outbox", "--dsn", shopDB.DSN)
	command(t, append([]string{"setup"}, relay...)...)
	relay = append([]string{"run"}, append(relay, "--set", "outbox.topic="+s.cfg.topic, "--set", "position_topic=", "--set", "admin.listen=")...)
	for _, setting := range settings {
		relay = append(relay, "--set", setting)
	}
	startRelay := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			var out strings.Builder
			if code := cli.Main(ctx, relay, nil, &out, &out); code != 0 {
				t.Errorf("the relay ended with %d:\n%s", code, out.String())
			}
		}()
		stop = func() { cancel(); <-ended }
		t.Cleanup(stop)
		return stop
	}

	stopService := s.start(t, nil)
	wait.For(t, "the service to be ready", ready)
	stopRelay := startRelay()
	conn := shopDB.Conn(t)
	var orders []uuid.UUID
	for i := range 60 {
		order := uuid.New()
		orders = append(orders, order)
		for _, kind := range []string{"OrderPlaced", "OrderPaid"} {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return outbox.Write(t.Context(), tx, outbox.Event{
					AggregateType: "order", AggregateID: order.String(), Type: kind,
					Payload: fmt.Appendf(nil, `{"id": %q, "customer": "ann", "cents": 4200}`, order),
				})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		switch i {
		case 20:
			stopRelay()
			startRelay()
		case 40:
			s.await(t, "some notifications", `SELECT count(*) >= 20 FROM notifications`)
			stopService()
			s.start(t, nil)
		}
	}
	s.await(t, "all notifications", fmt.Sprintf(`SELECT count(*) >= %d FROM notifications`, 2*len(orders)))
	for _, order := range orders {
		s.check(t, order, placed, paid)
	}
}
