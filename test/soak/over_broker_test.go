package soak

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/brokertest"
)

const (
	// overPayload is the maximum size of most payloads with another broker than Kafka. Some are 32 times as large, and
	// then have to fit into a message of each broker.
	overPayload = 4 << 10

	// overSequence is the maximum number of rows of a key in a transaction. SQS and webhooks get one after the other.
	overSequence = 300

	// overPace is what the slowest broker keeps up with: a webhook gets one request for each record.
	overPace = 6 * soakPace

	// outagePace applies while a broker starts. RabbitMQ needs half a minute for that on a busy machine, and the rows of so
	// long must not take longer than a strike allows.
	outagePace = time.Second
)

// connectOver reads the broker. It returns outbox.topic, and the sections of a relay that connects to addr.
func (s *soak) connectOver(t *testing.T) (topic string, sink func(addr string) string) {
	t.Helper()
	s.broker = s.over.Process
	for _, r := range s.relays {
		r.toBroker.Redirect(s.over.Addr)
	}
	s.confirms.lag = overAliveWithin
	if !s.over.Once {
		s.checker.ExplainRows(s.confirms.MayRepeat)
	}
	s.topics = []string{s.over.Topic}
	s.catchUp = s.over.Collect(t, s.recordOver)
	return s.over.Topic, s.over.Config
}

// recordOver hands a record of another broker than Kafka to the oracle.
func (s *soak) recordOver(a brokertest.Arrival) {
	r := &Record{
		Record:   delivery.Record{Coordinates: delivery.Coordinates{Topic: s.over.Topic, Offset: a.Number}, Key: a.Key, Value: a.Value},
		Producer: Producer{ID: -1},
		Seen:     a.Stored,
	}
	if r.Seen.IsZero() {
		r.Seen = time.Now()
	}
	for _, h := range (Event{}).Headers() {
		r.Headers = append(r.Headers, delivery.Header{Key: h.Key, Value: a.Header(h.Key)})
	}
	s.record(r, r.Seen)
}

// readAll returns when every record that is stored was read. While the broker is down, it waits.
func (s *soak) readAll(t *testing.T) {
	t.Helper()
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := s.catchUp(ctx)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
