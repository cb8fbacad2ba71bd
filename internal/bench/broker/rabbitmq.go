package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
)

// rabbitMQ is RabbitMQ. A destination is a quorum queue, which messages reach through the default exchange.
type rabbitMQ struct{ cfg rabbitmq.Config }

func rabbitError(doing string, err error) error {
	return failed(doing, err, "Check sink.rabbitmq.servers, and that its user may configure, write and read queues named "+measure.TopicPrefix+"*.")
}

func (b rabbitMQ) connect(ctx context.Context) (*amqp.Connection, error) {
	cfg := amqp.Config{Vhost: b.cfg.VHost, Heartbeat: b.cfg.Heartbeat, Locale: "en_US", SASL: []amqp.Authentication{&amqp.ExternalAuth{}}}
	if b.cfg.User != "" {
		password, err := b.cfg.Password(ctx)
		if err != nil {
			return nil, err
		}
		cfg.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: b.cfg.User, Password: password}}
	}
	scheme := "amqp"
	if b.cfg.TLS != nil {
		encryption, err := b.cfg.TLS()
		if err != nil {
			return nil, err
		}
		cfg.TLSClientConfig, scheme = encryption, "amqps"
	}
	cfg.Dial = amqp.DefaultDial(measure.ContactTimeout)
	host, port, err := net.SplitHostPort(b.cfg.Servers[0])
	if err != nil {
		return nil, err
	}
	conn, err := amqp.DialConfig(scheme+"://"+net.JoinHostPort(host, port), cfg)
	if err != nil {
		return nil, rabbitError("reach a server", err)
	}
	return conn, nil
}

// Library implements Broker.
func (rabbitMQ) Library() string { return "amqp091-go, deferred confirms" }

// List implements measure.Broker. There are none: the queues expire.
func (rabbitMQ) List(context.Context) ([]string, error) { return nil, nil }

// DropCommand implements measure.Broker.
func (rabbitMQ) DropCommand(prefix string) string {
	return fmt.Sprintf("rabbitmqctl list_queues name | grep %s | xargs -n 1 rabbitmqctl delete_queue", name(prefix))
}

// Open implements measure.Broker.
func (b rabbitMQ) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &rabbitQueues{conn: conn, layout: l}, nil
}

type rabbitQueues struct {
	conn   *amqp.Connection
	layout measure.Layout
	made   int
}

// Delete implements measure.Destinations. Every queue is that of a Stream.
func (*rabbitQueues) Delete(context.Context) error { return nil }

// Close implements measure.Destinations.
func (q *rabbitQueues) Close() { _ = q.conn.Close() }

const (
	// rabbitExpiry is after how long without consumer the broker deletes the queue of a killed bench.
	rabbitExpiry = time.Hour

	markerType = "outbox-cdc-bench-end" // of the message that marks the end of a queue
)

// Observe implements measure.Destinations.
func (q *rabbitQueues) Observe(ctx context.Context) (measure.Stream, error) {
	q.made++
	channel, err := q.conn.Channel()
	if err != nil {
		return nil, rabbitError("open a channel", err)
	}
	prefix := fmt.Sprintf("%s%d.", q.layout.Prefix, q.made)
	s := &rabbitStream{inbox: newInbox(), channel: channel, template: "/" + prefix + route, queues: names(prefix+route, q.layout.Topics)}
	for i, queue := range s.queues {
		if err := s.consume(queue); err != nil {
			s.queues = s.queues[:i]
			return nil, errors.Join(rabbitError("create a queue", err), s.Close(ctx))
		}
	}
	return s, nil
}

type rabbitStream struct {
	*inbox
	channel  *amqp.Channel
	template string
	queues   []string

	reading sync.WaitGroup
	marked  chan struct{} // the end of a queue
}

func (s *rabbitStream) consume(queue string) error {
	_, err := s.channel.QueueDeclare(queue, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-expires": rabbitExpiry.Milliseconds(),
	})
	if err != nil {
		return err
	}
	deliveries, err := s.channel.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	if s.marked == nil {
		s.marked = make(chan struct{}, cap(s.queues))
	}
	s.reading.Go(func() { // it ends with the channel
		offset := int64(0)
		for d := range deliveries {
			if d.Type == markerType {
				s.marked <- struct{}{}
				continue
			}
			offset++
			key, _ := d.Headers[rabbitmq.KeyHeader].(string)
			s.records <- received{at: time.Now(), topic: "/" + queue, offset: offset, key: []byte(key), value: d.Body}
		}
		s.fail(rabbitError("consume", errors.New("the channel was closed")))
	})
	return nil
}

// Names implements measure.Stream.
func (s *rabbitStream) Names() []string {
	all := make([]string, len(s.queues))
	for i, queue := range s.queues {
		all[i] = "/" + queue
	}
	return all
}

// Settings implements measure.Stream.
func (s *rabbitStream) Settings() map[string]any { return map[string]any{"outbox.topic": s.template} }

// End implements measure.Stream.
func (s *rabbitStream) End(ctx context.Context) (func() bool, error) {
	for _, queue := range s.queues {
		err := s.channel.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{Type: markerType, DeliveryMode: amqp.Persistent})
		if err != nil {
			return nil, rabbitError("mark the end of a queue", err)
		}
	}
	return func() bool { return len(s.marked) == len(s.queues) && len(s.records) == 0 }, nil
}

// Close implements measure.Stream.
func (s *rabbitStream) Close(context.Context) error {
	var errs []error
	for _, queue := range s.queues {
		_, err := s.channel.QueueDelete(queue, false, false, false)
		errs = append(errs, err)
	}
	errs = append(errs, s.channel.Close())
	gone := make(chan struct{})
	go func() {
		s.reading.Wait()
		close(gone)
	}()
	for {
		select {
		case <-s.records: // of a stream that nobody polls
		case <-gone:
			return errors.Join(errs...)
		}
	}
}

// Producer implements Broker.
func (b rabbitMQ) Producer(ctx context.Context) (measure.Producer, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	return &rabbitProducer{channel: channel}, err
}

// rabbitUnconfirmed is the maximum of messages without a confirm: that of the relay. More make the broker no faster.
const rabbitUnconfirmed = 2048

// A rabbitProducer publishes persistent, mandatory messages and waits for the oldest confirm when there are too many.
type rabbitProducer struct {
	channel *amqp.Channel
	waiting []*amqp.DeferredConfirmation
}

var errNack = errors.New("the broker has not confirmed a message")

// Publish implements measure.Producer.
func (p *rabbitProducer) Publish(ctx context.Context, messages []measure.Message) error {
	for i := range messages {
		m := &messages[i]
		if err := p.confirmTo(ctx, rabbitUnconfirmed-1); err != nil {
			return err
		}
		now := time.Now()
		c, err := p.channel.PublishWithDeferredConfirmWithContext(ctx, "", m.Topic[1:], true, false, amqp.Publishing{
			MessageId: m.ID, Type: m.Type, DeliveryMode: amqp.Persistent, Timestamp: now, Body: m.Payload,
			Headers: amqp.Table{rabbitmq.KeyHeader: m.Key, rabbitmq.TimeHeader: now.UnixMilli()},
		})
		if err != nil {
			return err
		}
		p.waiting = append(p.waiting, c)
	}
	return nil
}

// confirmTo waits until at most n messages are unconfirmed.
func (p *rabbitProducer) confirmTo(ctx context.Context, n int) error {
	for len(p.waiting) > n {
		acked, err := p.waiting[0].WaitContext(ctx)
		if err != nil {
			return err
		}
		if !acked {
			return errNack
		}
		p.waiting = p.waiting[1:]
	}
	return nil
}

// Wait implements measure.Producer.
func (p *rabbitProducer) Wait(ctx context.Context) error { return p.confirmTo(ctx, 0) }
