package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestRelayOverRabbitMQ(t *testing.T) {
	t.Parallel()
	server := rabbittest.Start(t, rabbittest.Config{})
	for _, kind := range []string{"classic", "quorum"} {
		relaysOver(t, rig.Broker{
			Topic: kind, // the routing key is the event type
			Config: fmt.Sprintf("sink: {rabbitmq: {servers: [%q], user: guest, password: guest}}\nposition: {file: %q}",
				server.Addr(), filepath.Join(t.TempDir(), "position")),
			Collect: func(t *testing.T, take func(rig.Received)) rig.CatchUp {
				t.Helper()
				return consume(t, server.URL("/"), kind, take)
			},
		})
	}
}

// consume binds a new queue to a new exchange of the same name, and consumes it.
func consume(t *testing.T, url, kind string, take func(rig.Received)) rig.CatchUp {
	t.Helper()
	conn, err := amqp.Dial(url)
	rig.Must(t, err)
	ch, err := conn.Channel()
	rig.Must(t, err)
	rig.Must(t, ch.ExchangeDeclare(kind, amqp.ExchangeTopic, true, false, false, false, nil))
	_, err = ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
	rig.Must(t, err)
	rig.Must(t, ch.QueueBind(kind, "#", kind, false, nil))
	rig.Must(t, ch.Qos(100, 0, false))
	deliveries, err := ch.Consume(kind, "", false, false, false, false, nil)
	rig.Must(t, err)
	markers := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n := int64(0)
		for d := range deliveries {
			n++
			if d.Exchange == "" {
				markers <- struct{}{}
			} else {
				key, _ := d.Headers[rabbitmq.KeyHeader].(string)
				take(rig.Received{Offset: n, Key: []byte(key), Value: d.Body, ID: d.MessageId, Type: d.Type})
			}
			_ = d.Ack(false)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	other, err := conn.Channel()
	rig.Must(t, err)
	return func(ctx context.Context) error {
		// A queue is in order, so a message at its end says when everything before it was taken.
		if err := other.PublishWithContext(ctx, "", kind, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent}); err != nil {
			return err
		}
		select {
		case <-markers:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
