package inboxrabbit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// The headers that the relay adds to a message.
const (
	keyHeader  = "outbox_key"
	nullHeader = "outbox_null" // true if the payload is null
	timeHeader = "timestamp_in_ms"
)

// Event returns the event of a message, without ID and Type. Those are set by [inbox.Processor.Handle], or by
// [inbox.Event.ParseHeaders]. Topic is the queue, because that is what keeps the order of a key, and Offset is the delivery
// tag. The properties message_id, type and content_type are the headers id, eventType and content-type, the exchange and
// the routing key the headers amqp_exchange and amqp_routing_key. The other headers follow in alphabetical order.
func Event(queue string, d *amqp.Delivery) inbox.Event {
	e := inbox.Event{Topic: queue, Offset: int64(d.DeliveryTag), Time: d.Timestamp, Payload: d.Body}
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	for _, property := range [][2]string{
		{"id", d.MessageId},
		{"eventType", d.Type},
		{"content-type", d.ContentType},
		{"amqp_exchange", d.Exchange},
		{"amqp_routing_key", d.RoutingKey},
	} {
		if property[1] != "" {
			e.Headers = append(e.Headers, inbox.Header{Name: property[0], Value: []byte(property[1])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		value := d.Headers[name]
		switch name {
		case keyHeader:
			e.Key = bytesOf(value)
			continue
		case nullHeader:
			if value == true {
				e.Payload = nil
				continue
			}
		case timeHeader:
			if ms, ok := value.(int64); ok {
				e.Time = time.UnixMilli(ms)
				continue
			}
		}
		values, repeated := value.([]any)
		if !repeated {
			values = []any{value}
		}
		for _, v := range values {
			e.Headers = append(e.Headers, inbox.Header{Name: name, Value: bytesOf(v)})
		}
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	return e
}

// bytesOf returns the bytes of a string or a byte array, and the text of any other value. Nil is null.
func bytesOf(value any) []byte {
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return []byte(v)
	case []byte:
		return v
	default:
		return fmt.Append(nil, v)
	}
}
