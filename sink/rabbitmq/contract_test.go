package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rabbittest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

func TestMain(m *testing.M) { rabbittest.Main(m) }

// TestContract runs the suite of package sinktest. A record is too large either for the broker or for the configuration.
func TestContract(t *testing.T) {
	r := rabbittest.Real(t)
	for name, limit := range map[string]int{"rejected by the broker": 0, "rejected before it is sent": 20_000} {
		t.Run(name, func(t *testing.T) {
			cfg := configOf(r, r.VHostName(t))
			cfg.MaxMessageBytes = limit
			sinktest.Run(t, newSubject(r, cfg))
		})
	}
}

// configOf returns a configuration for the user guest.
func configOf(r *rabbittest.Server, vhost string) Config {
	return Config{Servers: []string{r.Addr()}, VHost: vhost, User: "guest", Password: password("guest")}
}

func password(p string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return p, nil }
}

// A subject is a virtual host for package sinktest.
type subject struct {
	server *rabbittest.Server
	cfg    Config
	made   atomic.Int32 // number of destinations
	faults sinktest.ConnFaults
}

func newSubject(server *rabbittest.Server, cfg Config) *subject {
	return &subject{server: server, cfg: cfg, faults: sinktest.ConnFaults{IsWrite: isPublish}}
}

func (s *subject) Broker(window int) sink.Broker {
	cfg := s.cfg
	cfg.WindowRecords, cfg.Dial = window, s.faults.Dial
	return cfg
}

// Destination creates a topic exchange and a queue of the same name, which gets messages without an event type.
func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("destination%d", s.made.Add(1))
	ch := dialChannel(t, s.server.URL(s.cfg.VHost))
	declareBound(t, ch, name, "")
	return name
}

func dialChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// declareBound creates a topic exchange and a durable queue of the same name that is bound to it with a routing key.
func declareBound(t *testing.T, ch *amqp.Channel, name, key string) {
	t.Helper()
	declareBoundWith(t, ch, name, key, nil)
}

// declareBoundWith is like declareBound, for a queue with arguments.
func declareBoundWith(t *testing.T, ch *amqp.Channel, name, key string, args amqp.Table) {
	t.Helper()
	if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(name, key, name, false, nil); err != nil {
		t.Fatal(err)
	}
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, make([]byte, rabbittest.MaxMessageSize)...)
}

// Read returns the messages of the queue of a destination, which stay there.
func (s *subject) Read(t *testing.T, destination string) []sink.StoredRecord {
	t.Helper()
	var all []sink.StoredRecord
	for i, d := range readQueue(t, s.server.URL(s.cfg.VHost), destination) {
		all = append(all, sink.StoredRecord{Offset: int64(i), Record: recordOf(destination, &d)})
	}
	return all
}

// readQueue returns the messages of a queue, which stay there in their order.
func readQueue(t *testing.T, url, queue string) []amqp.Delivery {
	t.Helper()
	return consumeQueue(t, url, queue, false)
}

// consumeQueue returns the messages of a queue. With autoAck, they are removed from it; a quorum queue delivers only 2,000 without.
func consumeQueue(t *testing.T, url, queue string, autoAck bool) []amqp.Delivery {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // requeues the messages
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", autoAck, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []amqp.Delivery
	timeout := time.After(wait.Patience())
	for len(all) < q.Messages {
		select {
		case d := <-deliveries:
			all = append(all, d)
		case <-timeout:
			t.Fatalf("read %d of %d messages of queue %s", len(all), q.Messages, queue)
		}
	}
	return all
}

// recordOf returns the record of a message. AMQP does not keep the order of headers; this is the order in which the suite
// sends them.
func recordOf(topic string, d *amqp.Delivery) sink.Record {
	rec := sink.Record{Topic: topic, Value: d.Body, Headers: []sink.Header{{Key: idHeader, Value: []byte(d.MessageId)}}}
	if null, _ := d.Headers[NullHeader].(bool); null {
		rec.Value = nil
	}
	if ms, ok := d.Headers[TimeHeader].(int64); ok {
		rec.Timestamp = time.UnixMilli(ms)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		value, isText := d.Headers[name].(string)
		switch {
		case name == KeyHeader:
			rec.Key = []byte(value)
		case isText:
			rec.Headers = append(rec.Headers, sink.Header{Key: name, Value: []byte(value)})
		}
	}
	return rec
}

func (s *subject) Hold() sinktest.Fault {
	return s.faults.Hold()
}

func (s *subject) Faults() []sinktest.Fault {
	return []sinktest.Fault{
		s.faults.Cut(),
		s.faults.Lose(),
		s.faults.Alter("the broker does not store for now", nackAll),
	}
}

// isPublish reports whether b begins with the frame of basic.publish.
func isPublish(b []byte) bool {
	return len(b) > 11 && b[0] == 1 && b[7] == 0 && b[8] == 60 && b[9] == 0 && b[10] == 40
}

// nackAll changes each basic.ack in b to basic.nack, if b has whole frames. The frame of basic.ack has the same size: bit 1
// of its last byte, requeue, is not set. It reports whether there is one.
func nackAll(b []byte) (changed bool) {
	for len(b) >= 8 {
		size := int(b[3])<<24 | int(b[4])<<16 | int(b[5])<<8 | int(b[6])
		if len(b) < size+8 {
			break
		}
		if b[0] == 1 && b[8] == 60 && b[10] == 80 {
			b[10], changed = 120, true
		}
		b = b[size+8:]
	}
	return changed
}
