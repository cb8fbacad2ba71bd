package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A reader is the [sink.Reader] of a cluster. It reads what a consumer with isolation.level=read_committed reads. The
// user needs Describe and Read on the topics.
type reader struct {
	client  *client
	leaders leaders
}

var _ sink.ReaderOpener = Config{}

// OpenReader implements [sink.ReaderOpener].
func (c Config) OpenReader(log *slog.Logger) (sink.Reader, error) { return c.openReader(log) }

// OpenDeadLetters implements [sink.ReaderOpener].
func (c Config) OpenDeadLetters(ctx context.Context, topic string, log *slog.Logger) (sink.DeadLetters, error) {
	r, err := c.openReader(log)
	if err != nil {
		return nil, err
	}
	return sink.ReadDeadLetters(ctx, r, topic, func(topic string) error { return r.check(topic) })
}

func (c Config) openReader(log *slog.Logger) (*reader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.CreateTopics = nil // do not create topics
	client, err := newClient(c.withDefaults(), log, c.dial())
	if err != nil {
		return nil, err
	}
	return &reader{client, leadersFrom(client)}, nil
}

// Close implements [sink.Reader].
func (r *reader) Close() error {
	r.leaders.close()
	return r.client.Close()
}

// lookUp requests the metadata of topics. An error of a topic is in its topicInfo.
func (r *reader) lookUp(ctx context.Context, topics ...string) error {
	return r.client.retryTransient(ctx, func() error { return r.client.cluster.refresh(ctx, topics) })
}

// check returns an error if a topic is missing or may not be read, after lookUp.
func (r *reader) check(topics ...string) error {
	return r.client.checkKnown(func(info topicInfo) sarama.KError { return info.err }, topics...)
}

// OffsetRanges implements [sink.Reader].
func (r *reader) OffsetRanges(ctx context.Context, topics ...string) (map[string][]sink.OffsetRange, error) {
	if err := r.lookUp(ctx, topics...); err != nil {
		return nil, err
	}
	existing := slices.DeleteFunc(slices.Clone(topics), func(name string) bool {
		return r.client.cluster.topic(name).err == sarama.ErrUnknownTopicOrPartition
	})
	if err := r.check(existing...); err != nil {
		return nil, err
	}
	ranges := make(map[string][]sink.OffsetRange, len(existing))
	err := r.client.retryTransient(ctx, func() error {
		clear(ranges) // of an attempt that has failed in the middle
		led, err := r.byLeader(ctx, existing)
		for node, parts := range led {
			if err := r.leaders.onBroker(ctx, node, func(l *link) error { return readRanges(l, parts, ranges) }); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up the offsets of topics: %w", err)
	}
	for _, ofTopic := range ranges {
		slices.SortFunc(ofTopic, func(a, b sink.OffsetRange) int { return int(a.Partition) - int(b.Partition) })
	}
	return ranges, nil
}

// byLeader requests the leaders of topics and returns the partitions of each.
func (r *reader) byLeader(ctx context.Context, topics []string) (map[int32][]topicPartition, error) {
	c := r.client.cluster
	if err := c.refresh(ctx, topics); err != nil {
		return nil, err
	}
	led := make(map[int32][]topicPartition)
	for _, name := range topics {
		info := c.topic(name)
		if info.err != sarama.ErrNoError {
			return nil, errorOf(info.err)
		}
		for i, leader := range info.leaders {
			if err := info.leaderError(int32(i)); err != nil {
				return nil, err
			}
			led[leader.node] = append(led[leader.node], topicPartition{name, int32(i)})
		}
	}
	return led, nil
}

// readRanges adds the ranges of partitions of one leader. It asks for the ends without regard to transactions first: a record
// that was stored before is then in its range, or a transaction was open.
func readRanges(l *link, parts []topicPartition, ranges map[string][]sink.OffsetRange) error {
	begin, err := offsetsAt(l, parts, sarama.OffsetOldest, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	stored, err := offsetsAt(l, parts, sarama.OffsetNewest, sarama.ReadUncommitted)
	if err != nil {
		return err
	}
	end, err := offsetsAt(l, parts, sarama.OffsetNewest, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	for i, p := range parts {
		offsets := sink.OffsetRange{Partition: p.id, Begin: begin[i], End: end[i]}
		if stored[i] > end[i] {
			offsets.Hidden = stored[i]
		}
		ranges[p.topic] = append(ranges[p.topic], offsets)
	}
	return nil
}

// emptyTimeout limits how long Read retries while a broker returns no records.
const emptyTimeout = time.Minute

// Read implements [sink.Reader].
func (r *reader) Read(ctx context.Context, topic string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	if offsets.Begin >= offsets.End {
		return nil
	}
	var fnErr error
	again := false
	var progress time.Time // of the last one
	err := r.client.retryTransient(ctx, func() error {
		return r.leaders.use(ctx, topic, offsets.Partition, func(l *link) (err error) {
			if again { // the first records may have expired
				begin, err := offsetAt(l, topic, offsets.Partition, sarama.OffsetOldest, sarama.ReadCommitted)
				if err != nil {
					return err
				}
				offsets.Begin = max(offsets.Begin, begin)
			}
			again = true
			began := offsets.Begin
			offsets.Begin, err = fetchRecords(l, topic, offsets, sarama.ReadCommitted, func(rec fetchedRecord) error {
				fnErr = fn(rec.stored(topic, offsets.Partition))
				return fnErr
			})
			if progress.IsZero() || offsets.Begin > began {
				progress = time.Now()
			}
			if fnErr == nil && errors.Is(err, errEmptyAnswer) && time.Since(progress) > emptyTimeout {
				fnErr = fmt.Errorf("%w for %s, although it goes on to offset %d; if a broker has lost records, start again", err, emptyTimeout, offsets.End)
			}
			if fnErr == nil {
				return err
			}
			return nil // no reason to retry
		})
	})
	switch {
	case fnErr != nil:
		return fnErr
	case err != nil:
		return fmt.Errorf("read topic %s: %w", topic, err)
	}
	return nil
}

// stored returns the record as it was sent.
func (r *fetchedRecord) stored(topic string, partition int32) *sink.StoredRecord {
	s := &sink.StoredRecord{Offset: r.offset(), Record: sink.Record{
		Topic: topic, Partition: partition, Key: r.Key, Value: r.Value, Timestamp: r.timestamp(),
	}}
	for _, h := range r.Headers {
		s.Headers = append(s.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
	}
	return s
}
