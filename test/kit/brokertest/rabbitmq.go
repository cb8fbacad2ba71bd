package brokertest

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// RabbitMQ starts a server with an exchange and two queues of all its messages. The reader consumes the quorum queue. Nobody
// reads the classic one. The reader does not use a stream, because a stream may lose a message that RabbitMQ has confirmed
// while it restarts: https://github.com/rabbitmq/rabbitmq-server/issues/9457.
func RabbitMQ(t *testing.T) *Broker {
	t.Helper()
	server := rabbittest.Start(t, rabbittest.Config{})
	const exchange, queue = "events", "events-quorum"
	ch := amqpChannel(t, server)
	rig.Must(t, ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil))
	for name, args := range map[string]amqp.Table{
		queue: {"x-queue-type": "quorum", "x-single-active-consumer": true}, "events-classic": {"x-max-length": int64(1000)},
	} {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		rig.Must(t, err)
		rig.Must(t, ch.QueueBind(name, "#", exchange, false, nil))
	}
	position := filepath.Join(t.TempDir(), "position")
	r := &rabbitReader{url: server.URL("/"), queue: queue, taken: make(map[string]int)}
	t.Cleanup(r.close)
	return &Broker{
		Addr: server.Addr(), Topic: exchange, Process: server, Collect: r.collect,
		Config: func(addr string) string {
			return fmt.Sprintf("position: {file: %q}\nsink: {rabbitmq: {servers: [%q], user: guest, password: guest}}", position, addr)
		},
	}
}

func amqpChannel(t *testing.T, server *rabbittest.Server) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(server.URL("/"))
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	rig.Must(t, err)
	return ch
}

// A rabbitReader consumes a queue. It continues after restarts of the server.
type rabbitReader struct {
	url, queue string
	read       int64          // number of messages
	taken      map[string]int // how often messages were read over connections that were lost, by message id: they may be redelivered
	marker     atomic.Int64   // number of the last marker that was read

	mu        sync.Mutex
	markers   int64 // number of markers that were sent
	publisher *amqpLink
}

func (r *rabbitReader) collect(t *testing.T, f Collect) rig.CatchUp {
	t.Helper()
	inBackground(t, func(ctx context.Context) { _ = r.consume(ctx, f) })
	return r.catchUp
}

// catchUp writes a marker, and waits until it was read: a queue is in order.
func (r *rabbitReader) catchUp(ctx context.Context) error {
	n, err := r.mark(ctx)
	if err != nil {
		return err
	}
	for r.marker.Load() < n {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *rabbitReader) mark(ctx context.Context) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publisher == nil || r.publisher.IsClosed() {
		conn, err := r.dial()
		if err != nil {
			return 0, err
		}
		r.publisher = conn
	}
	defer context.AfterFunc(ctx, r.publisher.abort)()
	ch, err := r.publisher.Channel()
	if err != nil {
		return 0, err
	}
	defer ch.Close()
	r.markers++
	return r.markers, ch.PublishWithContext(ctx, "", r.queue, true, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, MessageId: strconv.FormatInt(r.markers, 10),
	})
}

// An amqpLink is a connection that can be aborted. A server that was killed may accept a request afterwards, and never respond to it.
type amqpLink struct {
	*amqp.Connection

	raw net.Conn
}

func (l *amqpLink) abort() { _ = l.raw.Close() }

func (r *rabbitReader) dial() (*amqpLink, error) {
	l := new(amqpLink)
	conn, err := amqp.DialConfig(r.url, amqp.Config{Dial: func(network, addr string) (raw net.Conn, err error) {
		l.raw, err = amqp.DefaultDial(readTimeout)(network, addr)
		return l.raw, err
	}})
	l.Connection = conn
	return l, err
}

func (r *rabbitReader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publisher != nil {
		r.publisher.abort()
	}
}

// consumeTimeout limits how long a server takes to register a consumer.
const consumeTimeout = 10 * time.Second

// prefetch is the maximum number of messages without an acknowledgement.
const prefetch = 500

// consume reads messages until the connection is lost.
func (r *rabbitReader) consume(ctx context.Context, f Collect) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.abort()
	defer context.AfterFunc(ctx, conn.abort)()
	late := time.AfterFunc(consumeTimeout, conn.abort)
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, r.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	late.Stop()
	var last []string // ids of the last messages, of which the server may not have the acknowledgement
	defer func() {
		for _, id := range last {
			r.taken[id]++
		}
	}()
	for d := range deliveries {
		switch {
		case d.Exchange == "":
			n, _ := strconv.ParseInt(d.MessageId, 10, 64)
			r.marker.Store(max(n, r.marker.Load()))
		case d.Redelivered && r.taken[d.MessageId] > 0:
			r.taken[d.MessageId]--
			last = append(last, d.MessageId)
		default:
			r.take(&d, f)
			last = append(last, d.MessageId)
		}
		if len(last) > 2*prefetch {
			last = append(last[:0], last[prefetch:]...)
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return nil
}

func (r *rabbitReader) take(d *amqp.Delivery, f Collect) {
	text := func(name string) string { v, _ := d.Headers[name].(string); return v }
	f(Arrival{Number: r.read, Key: []byte(text(rabbitmq.KeyHeader)), Value: d.Body, Header: func(name string) string {
		switch name {
		case "id":
			return d.MessageId
		case "eventType":
			return d.Type
		}
		return text(name)
	}})
	r.read++
}
