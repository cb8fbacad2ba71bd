// Package broker has the brokers of package measure, with one file for each kind: how to create destinations, how to read
// back what contenders have written to them, and how a client of the broker's usual library publishes the same rows.
package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

// A Broker is a broker of a configuration.
type Broker interface {
	measure.Broker

	// Library returns the name of the library that Producer uses.
	Library() string

	// Producer returns a client of the library. Its connections end with the process.
	Producer(ctx context.Context) (measure.Producer, error)
}

// New returns the configured broker.
func New(cfg *config.Config) (Broker, error) {
	sink, err := cfg.Broker()
	if err != nil {
		return nil, err
	}
	switch c := sink.(type) {
	case kafka.Config:
		return newKafka(c, cfg.Sink.Kafka.Compression)
	case jetstream.Config:
		return jetStream{c}, nil
	case rabbitmq.Config:
		return rabbitMQ{c}, nil
	case redisstreams.Config:
		return redisStreams{c}, nil
	case sqs.Config:
		return queues{c}, nil
	case webhook.Config:
		return newReceiver(c)
	}
	return nil, fmt.Errorf("%T cannot be measured", sink)
}

// failed returns the error for what the broker has refused.
func failed(doing string, err error, advice string) error {
	return &measure.ServerError{Broker: true, Err: fmt.Errorf("%s: %w", doing, err), Advice: advice}
}

// route is the variable of outbox.topic for the aggregate type.
const route = "${route}"

// names returns the destination of each aggregate type by a template with route.
func names(template string, topics int) []string {
	all := make([]string, topics)
	for i := range all {
		all[i] = strings.ReplaceAll(template, route, measure.AggregateType(i))
	}
	return all
}

// name returns a prefix of destinations without the period at its end.
func name(prefix string) string { return strings.TrimSuffix(prefix, ".") }

// milliseconds is the format of a timestamp as text, that of the relay.
const milliseconds = "2006-01-02T15:04:05.000Z07:00"

// pollTime is how long Poll waits for a record.
const pollTime = 100 * time.Millisecond

// A received is a record that a goroutine has received.
type received struct {
	at         time.Time
	topic      string
	offset     int64
	key, value []byte
}

// An inbox passes records from the goroutines that receive them to Poll.
type inbox struct {
	records chan received
	failed  chan error // has room for one
}

func newInbox() *inbox {
	return &inbox{records: make(chan received, 1000), failed: make(chan error, 1)}
}

// fail makes Poll return err, unless there is an earlier error.
func (b *inbox) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

// Poll implements measure.Stream.
func (b *inbox) Poll(ctx context.Context, take measure.Take) error {
	timer := time.NewTimer(pollTime)
	defer timer.Stop()
	for {
		select {
		case r := <-b.records:
			take(r.at, delivery.Coordinates{Topic: r.topic, Offset: r.offset}, r.key, r.value)
			if len(b.records) == 0 {
				return nil
			}
		case err := <-b.failed:
			return err
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
