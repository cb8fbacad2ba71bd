package inboxnats

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// The headers of a message, as the relay writes them, become those of the record.
func TestEvent(t *testing.T) {
	t.Parallel()
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got := event("orders", nats.Header{
		"outbox_key_base64": {"/w=="}, "outbox_null": {"value"}, "Nats-Msg-Id": {"x"}, "Nats-Pin-Id": {"x"},
		"outbox_timestamp": {"other", "2026-01-01T00:00:00.007Z"}, "id": {"1", "2"}, "binary_base64": {"AP8="}, "none_null": {""},
		"outbox_name_c3a4": {"umlaut"},
	}, nil, 7, stored)
	want := inbox.Event{
		Topic: "orders", Offset: 7, Key: []byte{0xff}, Time: time.Date(2026, 1, 1, 0, 0, 0, 7e6, time.UTC),
		Headers: []inbox.Header{
			{Name: "binary", Value: []byte{0, 0xff}},
			{Name: "id", Value: []byte("1")},
			{Name: "id", Value: []byte("2")},
			{Name: "none"},
			{Name: "ä", Value: []byte("umlaut")},
			{Name: "outbox_timestamp", Value: []byte("other")},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	foreign := event("orders", nil, nil, 8, stored)
	if foreign.Payload == nil || foreign.Key != nil || !foreign.Time.Equal(stored) {
		t.Errorf("a message without headers is %+v", foreign)
	}
}
