package kafka

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deadLetters is the [sink.DeadLetters] for a topic.
type deadLetters struct {
	reader *reader
	topic  string
}

// OpenDeadLetters implements [sink.Broker].
func (c Config) OpenDeadLetters(ctx context.Context, topic string, log *slog.Logger) (sink.DeadLetters, error) {
	r, err := c.openReader(log)
	if err != nil {
		return nil, err
	}
	if err = r.lookUp(ctx, topic); err == nil {
		err = r.check(topic)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &deadLetters{reader: r, topic: topic}, nil
}

// Spans implements [sink.DeadLetters].
func (d *deadLetters) Spans(ctx context.Context) ([]sink.Span, error) {
	spans, err := d.reader.Spans(ctx, d.topic)
	if err == nil && spans[d.topic] == nil { // deleted
		err = d.reader.check(d.topic)
	}
	return spans[d.topic], err
}

// Read implements [sink.DeadLetters].
func (d *deadLetters) Read(ctx context.Context, span sink.Span, fn func(*sink.StoredRecord) error) error {
	return d.reader.Read(ctx, d.topic, span, fn)
}

// Close implements [sink.DeadLetters].
func (d *deadLetters) Close() error { return d.reader.Close() }
