// Package inboxrabbit runs an [inbox.Processor] as a consumer of a queue of RabbitMQ, with amqp091-go.
//
//	err := inboxrabbit.Run(ctx, processor, inboxrabbit.Config{
//		Dial:  func() (*amqp.Connection, error) { return amqp.Dial("amqp://rabbitmq") },
//		Queue: "notifications", Bindings: []inboxrabbit.Binding{{Exchange: "outbox.event.order", RoutingKey: "#"}},
//	})
//
// # Queue
//
// Run declares the queue and binds it: a durable quorum queue with a single active consumer and without a delivery limit,
// after which RabbitMQ would drop a message. Start the service once before the first event that it must get: RabbitMQ does
// not keep messages for a queue that does not exist.
//
// # Acknowledgements
//
// A message is acknowledged after the transaction in which it was handled or stored in the inbox. If the connection is lost
// before, RabbitMQ puts the message back at its place in the queue and delivers it again. The adapter never rejects or
// requeues a single message, because later ones could overtake it.
//
// # Order and several instances
//
// With a single active consumer (x-single-active-consumer), RabbitMQ delivers the messages of the queue to one instance. If
// that one stops, crashes or loses its connection, another one gets all messages that are not acknowledged, in order. Without
// it, several instances get messages of the same key and the order is lost. To use more instances at a time, distribute the
// keys over several queues with a consistent-hash exchange whose hash-header is outbox_key.
//
// RabbitMQ closes the channel of a consumer that has not acknowledged a message for consumer_timeout, 30 minutes by
// default. Run then opens another one.
package inboxrabbit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/lanes"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// Config configures [Run]. Dial and Queue are required.
type Config struct {
	// Dial connects to RabbitMQ. Run calls it at the start and whenever the connection was lost, and closes the
	// connection.
	Dial func() (*amqp.Connection, error)
	// Queue is the queue of the service. All instances use the same queue, and no other service uses it.
	Queue string
	// Bindings are the exchanges of the relay from which the queue gets messages. Run waits until they exist. It removes no
	// other bindings.
	Bindings []Binding
	// Arguments are those of the queue. Nil means x-queue-type quorum, x-single-active-consumer true, and from RabbitMQ 4.0
	// on x-delivery-limit -1, because earlier versions have no limit. If the queue exists with others, Run returns an error.
	Arguments amqp.Table
	// NoDeclare means that the queue is declared and bound elsewhere. Run then waits until it exists. It cannot find out
	// whether the queue has a single active consumer, without which events lose their order if there are several instances.
	NoDeclare bool
	// Concurrency is how many events are handled at the same time. They have different keys, and each uses a
	// connection of the pool. Zero means 4.
	Concurrency int
	// Prefetch is how many messages RabbitMQ delivers before it gets acknowledgements. All of them can be in memory. Zero
	// means 200. With a quorum queue and more than 32, RabbitMQ may drop some of the last acknowledgements before a stop.
	// It then delivers these messages again, and the Processor ignores them.
	Prefetch int
}

const (
	defaultConcurrency = 4
	defaultPrefetch    = 200
)

// A Binding binds the queue to an exchange. With an exchange of the type topic, the routing key # matches all messages, and
// OrderPaid those of this event type.
type Binding struct{ Exchange, RoutingKey string }

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Dial == nil:
		return c, errors.New("inboxrabbit: Config.Dial is nil")
	case c.Queue == "":
		return c, errors.New("inboxrabbit: Config.Queue is empty")
	case c.Concurrency < 0 || c.Prefetch < 0:
		return c, errors.New("inboxrabbit: a number of Config is negative")
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.Prefetch == 0 {
		c.Prefetch = defaultPrefetch
	}
	return c, nil
}

// Run consumes messages and runs p, until ctx is done. Then it waits until the running handlers have finished, or until
// Config.Grace of p is over, and returns nil. Messages that are not handled go to another instance.
//
// Run continues while RabbitMQ is unavailable. It returns an error that a retry cannot fix: from p.Handle or p.Run, or if
// RabbitMQ rejects the user, the virtual host or the queue.
func Run(ctx context.Context, p *inbox.Processor, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	c := &consumer{Config: cfg, p: p, log: &logger{log: p.Logger().With(slog.String("queue", cfg.Queue))}}
	c.log.joining(ctx)
	consume := func(ctx context.Context) error { return sessions.Repeat(ctx, c.session, c.log.trouble) }
	return sessions.Run(ctx, consume, p.Run)
}

// A consumer runs sessions with the queue, one after the other.
type consumer struct {
	Config

	p   *inbox.Processor
	log *logger
}

const closeTimeout = 5 * time.Second

// explain wraps an error of a request with which a session starts. RabbitMQ rejects some of them for good.
func explain(doing string, err error) error {
	wrapped := fmt.Errorf("inboxrabbit: %s: %w", doing, err)
	answer, ok := errors.AsType[*amqp.Error](err)
	rejected := ok && (answer.Code == amqp.AccessRefused || answer.Code == amqp.PreconditionFailed || answer.Code == amqp.NotAllowed)
	if rejected || errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) || errors.Is(err, amqp.ErrSASL) {
		return sessions.Final(wrapped)
	}
	return wrapped
}

// session consumes messages until ctx is done or the channel is closed.
func (c *consumer) session(ctx context.Context) error {
	conn, err := c.Dial()
	if err != nil {
		return explain("connect", err)
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(closeTimeout)) }() // RabbitMQ notices in any case
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("inboxrabbit: open a channel: %w", err)
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	canceled := channel.NotifyCancel(make(chan string, 1))
	if err := c.declare(channel, conn); err != nil {
		return err
	}
	if err := channel.Qos(c.Prefetch, 0, false); err != nil {
		return explain("set the prefetch count", err)
	}
	deliveries, err := channel.ConsumeWithContext(context.WithoutCancel(ctx), c.Queue, "", false, false, false, false, nil)
	if err != nil {
		return explain("consume", err)
	}
	c.log.open(ctx)
	if err := c.receive(ctx, deliveries); err != nil || ctx.Err() != nil {
		return err
	}
	select {
	case reason := <-closed:
		if reason != nil {
			return fmt.Errorf("inboxrabbit: consume: %w", reason)
		}
	case <-canceled:
		return errCanceled
	default:
	}
	return errClosed
}

var (
	errCanceled = errors.New("inboxrabbit: the queue was deleted or moved to another node")
	errClosed   = errors.New("inboxrabbit: the connection was closed")
)

// declare declares and binds the queue, or with NoDeclare looks whether it exists.
func (c *consumer) declare(channel *amqp.Channel, conn *amqp.Connection) error {
	if c.NoDeclare {
		_, err := channel.QueueDeclarePassive(c.Queue, true, false, false, false, nil)
		if answer, ok := errors.AsType[*amqp.Error](err); ok && answer.Code == amqp.PreconditionFailed {
			err = nil // it exists, but is not durable
		}
		if err != nil {
			return explain("look up the queue", err)
		}
		return nil
	}
	if _, err := channel.QueueDeclare(c.Queue, true, false, false, false, c.arguments(conn)); err != nil {
		return explain("declare the queue", err)
	}
	for _, b := range c.Bindings {
		if err := channel.QueueBind(c.Queue, b.RoutingKey, b.Exchange, false, nil); err != nil {
			return explain("bind the queue to exchange "+b.Exchange, err)
		}
	}
	return nil
}

// arguments returns the arguments of the queue.
func (c *consumer) arguments(conn *amqp.Connection) amqp.Table {
	if c.Arguments != nil {
		return c.Arguments
	}
	table := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
	if version, _ := conn.Properties["version"].(string); !strings.HasPrefix(version, "3.") {
		table["x-delivery-limit"] = -1
	}
	return table
}

// receive hands deliveries to the lanes until ctx is done, the channel is closed, or an event or an acknowledgement fails.
// When the channel is closed, RabbitMQ puts back what is not acknowledged.
func (c *consumer) receive(ctx context.Context, deliveries <-chan amqp.Delivery) error {
	group := lanes.New(ctx, c.Concurrency, c.Prefetch, c.p.Handle)
	defer group.Close()
	lost := make(chan error, 1) // an error of an acknowledgement
	for {
		var d amqp.Delivery
		var ok bool
		select {
		case d, ok = <-deliveries:
		case err := <-lost:
			return fmt.Errorf("inboxrabbit: acknowledge: %w", err)
		case <-group.Failed():
		case <-ctx.Done():
			return nil
		}
		if err := group.Err(); err != nil {
			return sessions.Final(err)
		}
		if !ok {
			return nil
		}
		c.log.assigned(ctx)
		err := group.Add(ctx, Event(c.Queue, &d), func() {
			if err := d.Ack(false); err != nil {
				select {
				case lost <- err:
				default:
				}
			}
		})
		if err != nil && ctx.Err() == nil {
			return sessions.Final(err)
		}
	}
}
