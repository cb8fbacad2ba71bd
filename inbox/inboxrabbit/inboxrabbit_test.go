package inboxrabbit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxrabbit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/inboxtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
)

func TestMain(m *testing.M) { pgtest.Main(rabbittest.Wrap(m)) }

// prefetch is at most the number of acknowledgements that a channel of RabbitMQ passes on to a quorum queue at once
// (quorum_commands_soft_limit, 32). It keeps further ones, and drops them if the channel is closed meanwhile.
const prefetch = 30

func TestContract(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]amqp.Table{
		"quorum queue":  nil,
		"classic queue": {amqp.SingleActiveConsumerArg: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Contract(t, subject(t, rabbittest.Real(t), inboxrabbit.Config{Arguments: arguments}))
		})
	}
	t.Run("queue declared elsewhere", func(t *testing.T) {
		t.Parallel()
		inboxtest.Contract(t, subject(t, rabbittest.Real(t), inboxrabbit.Config{NoDeclare: true}))
	})
}

func TestOutage(t *testing.T) {
	t.Parallel()
	inboxtest.Outage(t, subject(t, rabbittest.Real(t), inboxrabbit.Config{}))
}

// The server is killed and started again, with a classic queue, and stopped and started again, with a quorum queue.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]inboxrabbit.Config{
		"classic queue": {Arguments: amqp.Table{amqp.SingleActiveConsumerArg: true}},
		"quorum queue":  {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := rabbittest.Start(t, rabbittest.Config{})
			s := subject(t, server, cfg)
			s.Restart = func(tb testing.TB) {
				tb.Helper()
				if cfg.Arguments != nil {
					if err := server.Kill(tb.Context()); err != nil {
						tb.Fatal(err)
					}
				}
				if err := server.Restart(tb.Context()); err != nil {
					tb.Fatal(err)
				}
			}
			inboxtest.Restart(t, s)
		})
	}
}

// BenchmarkLatency uses the default settings.
func BenchmarkLatency(b *testing.B) {
	inboxtest.Latency(b, subject(b, rabbittest.Real(b), inboxrabbit.Config{}))
}

// subject returns the Subject of a virtual host of a server. The topic is the queue, and there are no groups.
func subject(tb testing.TB, server *rabbittest.Server, cfg inboxrabbit.Config) inboxtest.Subject {
	tb.Helper()
	vhost := server.VHostName(tb)
	arguments := cfg.Arguments
	if arguments == nil {
		arguments = amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
	}
	channel := func(tb testing.TB) *amqp.Channel {
		tb.Helper()
		conn, err := amqp.Dial(server.URL(vhost))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { conn.Close() })
		ch, err := conn.Channel()
		if err != nil {
			tb.Fatal(err)
		}
		return ch
	}
	return inboxtest.Subject{
		Create: func(tb testing.TB, topic string) {
			tb.Helper()
			ch := channel(tb)
			defer ch.Close()
			if _, err := ch.QueueDeclare(topic, true, false, false, false, arguments); err != nil {
				tb.Fatal(err)
			}
			// Another queue keeps what the queue gets, so that Acknowledged can count it.
			if _, err := ch.QueueDeclare(topic+"-all", true, false, false, false, nil); err != nil {
				tb.Fatal(err)
			}
			if err := ch.ExchangeDeclare(topic, "fanout", true, false, false, false, nil); err != nil {
				tb.Fatal(err)
			}
			for _, queue := range []string{topic, topic + "-all"} {
				if err := ch.QueueBind(queue, "", topic, false, nil); err != nil {
					tb.Fatal(err)
				}
			}
		},
		Publish: func(tb testing.TB, topic string, messages ...inboxtest.Message) {
			tb.Helper()
			ch := channel(tb)
			defer ch.Close()
			if err := ch.Confirm(false); err != nil {
				tb.Fatal(err)
			}
			var last *amqp.DeferredConfirmation
			for _, m := range messages {
				headers := amqp.Table{"timestamp_in_ms": time.Now().UnixMilli()}
				if m.Key != "" {
					headers["outbox_key"] = m.Key
				}
				var err error
				last, err = ch.PublishWithDeferredConfirmWithContext(tb.Context(), topic, m.Type, true, false, amqp.Publishing{
					DeliveryMode: amqp.Persistent, MessageId: m.ID, Type: m.Type, Headers: headers, Body: []byte(m.Payload),
				})
				if err != nil {
					tb.Fatal(err)
				}
			}
			if ok, err := last.WaitContext(tb.Context()); err != nil || !ok {
				tb.Fatalf("confirmed %t, %v", ok, err)
			}
		},
		Run: func(ctx context.Context, addr, _, topic string, p *inbox.Processor) error {
			url := server.URL(vhost)
			if addr != "" {
				url = strings.Replace(url, server.Addr(), addr, 1)
			}
			cfg := cfg
			cfg.Queue, cfg.Prefetch = topic, prefetch
			cfg.Bindings = []inboxrabbit.Binding{{Exchange: topic}}
			cfg.Dial = func() (*amqp.Connection, error) { return amqp.Dial(url) }
			return inboxrabbit.Run(ctx, p, cfg)
		},
		// A message that is delivered and not acknowledged is ready again soon after the connection is closed.
		Acknowledged: func(tb testing.TB, _, topic string) int {
			tb.Helper()
			ch := channel(tb)
			defer ch.Close()
			ready := func(queue string) int {
				q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
				if err != nil {
					tb.Fatal(err)
				}
				return q.Messages
			}
			return ready(topic+"-all") - ready(topic)
		},
		Proxy: func(tb testing.TB) *faultproxy.Proxy { tb.Helper(); return faultproxy.Start(tb, server.Addr()) },
		Log: inboxtest.Lines{
			Joining: "inbox: joining the consumers of the queue", Assigned: "inbox: messages assigned to this instance",
			Missing: "inbox: queue or exchange does not exist, waiting for it",
			Lost:    "inbox: broker unavailable, retrying", Back: "inbox: broker available again",
		},
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	dial := func() (*amqp.Connection, error) { return nil, amqp.ErrCredentials }
	for want, cfg := range map[string]inboxrabbit.Config{
		"inboxrabbit: Config.Dial is nil":                      {Queue: "q"},
		"inboxrabbit: Config.Queue is empty":                   {Dial: dial},
		"inboxrabbit: a number of Config is negative":          {Dial: dial, Queue: "q", Prefetch: -1},
		"inboxrabbit: connect: " + amqp.ErrCredentials.Error(): {Dial: dial, Queue: "q"},
	} {
		if err := inboxrabbit.Run(t.Context(), p, cfg); err == nil || err.Error() != want {
			t.Errorf("Run = %v, want %s", err, want)
		}
	}
}

// A queue without a single active consumer is not used.
func TestOtherArguments(t *testing.T) {
	t.Parallel()
	server := rabbittest.Real(t)
	url := server.VHost(t)
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	p := inboxtest.Processor(t, func(context.Context, pgx.Tx, inbox.Event) error { return nil })
	err = inboxrabbit.Run(t.Context(), p, inboxrabbit.Config{Queue: "q", Dial: func() (*amqp.Connection, error) { return amqp.Dial(url) }})
	if err == nil || !strings.Contains(err.Error(), "inboxrabbit: declare the queue: ") || !strings.Contains(err.Error(), amqp.SingleActiveConsumerArg) {
		t.Errorf("Run = %v", err)
	}
}
