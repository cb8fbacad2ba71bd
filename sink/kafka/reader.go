package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// A Span is the offsets of a partition from Begin to before End.
type Span struct {
	Partition  int32
	Begin, End int64
}

// A StoredRecord is a record as the log of a topic holds it. Its Timestamp is the one it was
// sent with, also where the topic has its own (message.timestamp.type), and its Seq is 0.
type StoredRecord struct {
	Record
	Offset int64
}

// A Reader reads what a topic holds. It needs Describe and Read on the topic and writes
// nothing. It belongs to one goroutine.
type Reader struct {
	client *Client
	topic  string
}

// OpenReader reaches the cluster as [Open] does, but for the right to write, and looks for the
// topic: the error wraps ErrTopicMissing if there is none. The Reader must be closed.
func OpenReader(ctx context.Context, cfg Config, topic string, log *slog.Logger) (*Reader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.CreateTopics = nil // to look for one makes none
	client, err := newClient(cfg.withDefaults(), log, cfg.dial())
	if err != nil {
		return nil, err
	}
	err = client.persist(ctx, func() error { return client.cluster.refresh(ctx, []string{topic}) })
	if err == nil {
		err = client.CheckTopics(ctx, topic)
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &Reader{client: client, topic: topic}, nil
}

// Spans returns what each partition holds now, in the order of their numbers.
func (r *Reader) Spans(ctx context.Context) ([]Span, error) {
	var spans []Span
	err := r.client.persist(ctx, func() error {
		if err := r.client.cluster.refresh(ctx, []string{r.topic}); err != nil {
			return err
		}
		spans = make([]Span, len(r.client.cluster.topic(r.topic).leaders))
		for i := range spans {
			span, err := r.span(ctx, int32(i))
			if err != nil {
				return err
			}
			spans[i] = span
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up topic %s: %w", r.topic, err)
	}
	return spans, nil
}

func (r *Reader) span(ctx context.Context, partition int32) (Span, error) {
	l, err := r.client.leaderOf(ctx, r.topic, partition)
	if err != nil {
		return Span{}, err
	}
	defer func() { _ = l.Close() }()
	begin, err := offsetAt(l, r.topic, partition, sarama.OffsetOldest)
	if err != nil {
		return Span{}, err
	}
	end, err := offsetAt(l, r.topic, partition, sarama.OffsetNewest)
	return Span{Partition: partition, Begin: begin, End: end}, err
}

// Read calls fn with each record at the offsets of span, in their order; what has expired or was
// compacted away is left out. The record is fn's own. An error of fn ends the reading and is
// returned. What may heal is retried until ctx ends, and goes on where it was.
func (r *Reader) Read(ctx context.Context, span Span, fn func(*StoredRecord) error) error {
	var refused error // by fn
	err := r.client.persist(ctx, func() error {
		l, err := r.client.leaderOf(ctx, r.topic, span.Partition)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		begin, err := offsetAt(l, r.topic, span.Partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		span.Begin = max(span.Begin, begin)
		span.Begin, err = fetch(l, r.topic, span, func(offset int64, at time.Time, rec *sarama.Record) error {
			refused = fn(r.stored(span.Partition, offset, at, rec))
			return refused
		})
		if refused != nil {
			return nil
		}
		return err
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return fmt.Errorf("read topic %s: %w", r.topic, err)
	}
	return nil
}

func (r *Reader) stored(partition int32, offset int64, at time.Time, rec *sarama.Record) *StoredRecord {
	s := &StoredRecord{Offset: offset, Record: Record{
		Topic: r.topic, Partition: partition, Key: rec.Key, Value: rec.Value, Timestamp: at,
	}}
	for _, h := range rec.Headers {
		s.Headers = append(s.Headers, Header{Key: string(h.Key), Value: h.Value})
	}
	return s
}

// Close ends the Reader.
func (r *Reader) Close() error { return r.client.Close() }
