package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
)

const (
	rabbitUser     = "guest" // RabbitMQ allows it from the same machine only
	rabbitPassword = "guest"
	rabbitPrefetch = 1000 // messages without an acknowledgement
)

func rabbitMQKind() kind {
	return kind{
		name: "rabbitmq", title: "RabbitMQ", from: "rabbitmq-server, if it is installed", connects: true,
		flags: "-c outbox-cdc.yaml", page: "docs/rabbitmq.md", open: openRabbitMQ,
	}
}

func openRabbitMQ(ctx context.Context, r *rig) (*broker, error) {
	b := &broker{addrs: r.opts.Brokers, details: given(r.opts), names: rabbitmq.Names{}, topic: r.names.prefix + route}
	if len(b.addrs) == 0 {
		srv, err := rabbittest.Launch(ctx, rabbittest.Config{})
		switch {
		case errors.Is(err, rabbittest.ErrNotInstalled):
			return nil, notInstalled("rabbitmq-server", r.kind, "5672")
		case err != nil:
			return nil, fmt.Errorf("start rabbitmq-server: %w", err)
		}
		r.later(func(context.Context) error { return srv.Stop() })
		b.addrs = []string{srv.Addr()}
		b.details = "a private server on " + srv.Addr()
	}
	server := url.URL{Scheme: "amqp", User: url.UserPassword(rabbitUser, rabbitPassword), Host: b.addrs[0], Path: "/"}
	conn, err := amqp.DialConfig(server.String(), amqp.Config{
		Dial: amqp.DefaultDial(contactTimeout), Properties: amqp.Table{"connection_name": clientID},
	})
	if err != nil {
		return nil, unreachable(b, err)
	}
	r.later(func(context.Context) error { return conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	queue := r.names.object
	if err := declare(r, ch, queue, b.destinations()); err != nil {
		return nil, err
	}
	b.sink = rabbitmq.Config{
		Servers: b.addrs, ConnectionName: relayClientID, User: rabbitUser,
		Password: func(context.Context) (string, error) { return rabbitPassword, nil },
	}
	b.consume = func(ctx context.Context, take func(message)) error { return consumeQueue(ctx, ch, queue, take) }
	return b, nil
}

// declare creates the exchanges, and a quorum queue that gets the messages of all of them.
func declare(r *rig, ch *amqp.Channel, queue string, exchanges []string) error {
	_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-single-active-consumer": true})
	if err != nil {
		return fmt.Errorf("create queue %s: %w", queue, err)
	}
	shared := len(r.opts.Brokers) > 0
	r.laterAt(shared, func(context.Context) error {
		if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
			return fmt.Errorf("delete queue %s: %w", queue, err)
		}
		return nil
	})
	for _, exchange := range exchanges {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return fmt.Errorf("create exchange %s: %w", exchange, err)
		}
		r.laterAt(shared, func(context.Context) error {
			if err := ch.ExchangeDelete(exchange, false, false); err != nil {
				return fmt.Errorf("delete exchange %s: %w", exchange, err)
			}
			return nil
		})
		if err := ch.QueueBind(queue, "#", exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %s to exchange %s: %w", queue, exchange, err)
		}
	}
	return nil
}

func consumeQueue(ctx context.Context, ch *amqp.Channel, queue string, take func(message)) error {
	if err := ch.Qos(rabbitPrefetch, 0, false); err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := ch.ConsumeWithContext(ctx, queue, clientID, false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume %s: %w", queue, err)
	}
	n := int64(0)
	for d := range deliveries {
		n++
		key, _ := d.Headers[rabbitmq.KeyHeader].(string)
		take(message{destination: d.Exchange, key: key, id: d.MessageId, kind: d.Type, offset: n})
		if err := d.Ack(false); err != nil {
			break // the connection is lost
		}
	}
	select {
	case err := <-closed:
		return fmt.Errorf("consume %s: %w", queue, err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
