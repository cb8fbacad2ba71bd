package inboxrabbit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// The properties and headers of a message, as the relay writes them, become the headers of the record.
func TestEvent(t *testing.T) {
	t.Parallel()
	got := Event("notifications", &amqp.Delivery{
		DeliveryTag: 7, MessageId: "1", Type: "OrderPaid", ContentType: "application/json", Exchange: "orders", RoutingKey: "OrderPaid",
		Timestamp: time.Unix(1, 0), Headers: amqp.Table{
			"outbox_key": []byte{0xff}, "outbox_null": true, "timestamp_in_ms": int64(1007), "none": nil, "twice": []any{"a", []byte{0xff}, nil},
		},
	})
	want := inbox.Event{
		Topic: "notifications", Offset: 7, Key: []byte{0xff}, Time: time.UnixMilli(1007),
		Headers: []inbox.Header{
			{Name: "id", Value: []byte("1")},
			{Name: "eventType", Value: []byte("OrderPaid")},
			{Name: "content-type", Value: []byte("application/json")},
			{Name: "amqp_exchange", Value: []byte("orders")},
			{Name: "amqp_routing_key", Value: []byte("OrderPaid")},
			{Name: "none"},
			{Name: "twice", Value: []byte("a")},
			{Name: "twice", Value: []byte{0xff}},
			{Name: "twice"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	foreign := Event("q", &amqp.Delivery{})
	if foreign.Payload == nil || foreign.Key != nil || foreign.Time.IsZero() {
		t.Errorf("a message without headers is %+v", foreign)
	}
}
