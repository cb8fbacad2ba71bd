package kafka

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// deadLetters is the [sink.DeadLetters] for a topic. It reads what a consumer with isolation.level=read_committed
// reads. The user needs Describe and Read on the topic.
type deadLetters struct {
	client *client
	topic  string
}

// OpenDeadLetters implements [sink.Broker].
func (c Config) OpenDeadLetters(ctx context.Context, topic string, log *slog.Logger) (sink.DeadLetters, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.CreateTopics = nil // do not create the topic
	client, err := newClient(c.withDefaults(), log, c.dial())
	if err != nil {
		return nil, err
	}
	err = client.retryTransient(ctx, func() error { return client.cluster.refresh(ctx, []string{topic}) })
	if err == nil {
		err = client.checkTopics(ctx, func(info topicInfo) sarama.KError { return info.err }, topic)
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &deadLetters{client: client, topic: topic}, nil
}

// Spans implements [sink.DeadLetters].
func (d *deadLetters) Spans(ctx context.Context) ([]sink.Span, error) {
	var spans []sink.Span
	err := d.client.retryTransient(ctx, func() error {
		if err := d.client.cluster.refresh(ctx, []string{d.topic}); err != nil {
			return err
		}
		spans = make([]sink.Span, len(d.client.cluster.topic(d.topic).leaders))
		for i := range spans {
			span, err := d.span(ctx, int32(i))
			if err != nil {
				return err
			}
			spans[i] = span
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up topic %s: %w", d.topic, err)
	}
	return spans, nil
}

func (d *deadLetters) span(ctx context.Context, partition int32) (sink.Span, error) {
	l, err := d.client.leaderOf(ctx, d.topic, partition)
	if err != nil {
		return sink.Span{}, err
	}
	defer func() { _ = l.Close() }()
	begin, err := offsetAt(l, d.topic, partition, sarama.OffsetOldest, sarama.ReadCommitted)
	if err != nil {
		return sink.Span{}, err
	}
	end, err := offsetAt(l, d.topic, partition, sarama.OffsetNewest, sarama.ReadCommitted)
	return sink.Span{Partition: partition, Begin: begin, End: end}, err
}

// Read implements [sink.DeadLetters].
func (d *deadLetters) Read(ctx context.Context, span sink.Span, fn func(*sink.StoredRecord) error) error {
	var fnErr error
	err := d.client.retryTransient(ctx, func() error {
		l, err := d.client.leaderOf(ctx, d.topic, span.Partition)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		begin, err := offsetAt(l, d.topic, span.Partition, sarama.OffsetOldest, sarama.ReadCommitted)
		if err != nil {
			return err
		}
		span.Begin = max(span.Begin, begin)
		span.Begin, err = fetchRecords(l, d.topic, span, sarama.ReadCommitted, func(r fetchedRecord) error {
			fnErr = fn(d.stored(span.Partition, &r))
			return fnErr
		})
		if fnErr != nil {
			return nil
		}
		return err
	})
	switch {
	case fnErr != nil:
		return fnErr
	case err != nil:
		return fmt.Errorf("read topic %s: %w", d.topic, err)
	}
	return nil
}

func (d *deadLetters) stored(partition int32, rec *fetchedRecord) *sink.StoredRecord {
	s := &sink.StoredRecord{Offset: rec.offset(), Record: sink.Record{
		Topic: d.topic, Partition: partition, Key: rec.Key, Value: rec.Value, Timestamp: rec.timestamp(),
	}}
	for _, h := range rec.Headers {
		s.Headers = append(s.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
	}
	return s
}

// Close implements [sink.DeadLetters].
func (d *deadLetters) Close() error { return d.client.Close() }
