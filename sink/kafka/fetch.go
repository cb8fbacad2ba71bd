package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// scanRecords is how far before its end a topic is searched first; each further look
	// begins twice as far back. The newest value of a relay that was running a moment ago is
	// near the end, and what compaction has not come to yet may be long.
	scanRecords = 1_000

	fetchBytes   = 1 << 20
	fetchVersion = 11 // the last before flexible versions; negotiated downwards
)

// Read implements [sink.PositionStore]: it returns what compaction has left of the newest value's
// surroundings, after the last tombstone. It reads to what was the topic's end when it began.
func (s *positionStore) Read(ctx context.Context) ([][]byte, error) {
	var values [][]byte
	err := s.client.persist(ctx, func() error {
		l, err := s.client.leaderOf(ctx, s.topic, 0)
		if err != nil {
			return err
		}
		defer l.Close()
		values, err = newest(l, s.topic, s.key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", s.topic, err)
	}
	return values, nil
}

// leaderOf connects to the leader of a partition.
func (c *client) leaderOf(ctx context.Context, topic string, partition int32) (*link, error) {
	if err := c.cluster.refresh(ctx, []string{topic}); err != nil {
		return nil, err
	}
	info := c.cluster.topic(topic)
	if err := info.led(partition); err != nil {
		return nil, err
	}
	l, err := c.wire.connect(ctx, c.cluster.address(info.leaders[partition]), controlTimeout)
	if err != nil {
		return nil, err
	}
	l.conn.watch(ctx)
	return l, nil
}

// led returns nil if a partition has a leader, else why not.
func (i topicInfo) led(partition int32) error {
	switch {
	case i.err != sarama.ErrNoError:
		return errorOf(i.err)
	case int(partition) >= len(i.leaders) || i.leaders[partition] == noLeader:
		return errorOf(sarama.ErrLeaderNotAvailable)
	}
	return nil
}

// newest returns the last values of key in partition 0, oldest first, none if there is none.
func newest(l *link, topic string, key []byte) ([][]byte, error) {
	begin, err := offsetAt(l, topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := offsetAt(l, topic, 0, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	for back := int64(scanRecords); ; back *= 2 {
		from := max(begin, end-back)
		values, err := valuesIn(l, topic, key, from, end)
		if err != nil || len(values) > 0 || from == begin {
			return behindTombstones(values), err
		}
		end = from
	}
}

func behindTombstones(values [][]byte) [][]byte {
	for i, v := range slices.Backward(values) {
		if v == nil {
			return values[i+1:]
		}
	}
	return values
}

// offsetAt returns the oldest or newest offset of a partition.
func offsetAt(l *link, topic string, partition int32, at int64) (int64, error) {
	req := sarama.NewOffsetRequest(protocol())
	req.AddBlock(topic, partition, at, 1)
	res, err := l.GetAvailableOffsets(req)
	if err != nil {
		return 0, err
	}
	block := res.GetBlock(topic, partition)
	switch {
	case block == nil:
		return 0, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return 0, errorOf(block.Err)
	}
	return block.Offset, nil
}

// valuesIn returns the values of key in partition 0 at the offsets from (inclusive) to end
// (exclusive); nil is a tombstone.
func valuesIn(l *link, topic string, key []byte, from, end int64) (values [][]byte, err error) {
	_, err = fetch(l, topic, sink.Span{Begin: from, End: end}, func(_ int64, _ time.Time, rec *sarama.Record) error {
		if bytes.Equal(rec.Key, key) {
			values = append(values, bytes.Clone(rec.Value))
		}
		return nil
	})
	return values, err
}

// fetch calls fn with each record that the log has at the offsets of span. It returns the
// offset behind the last one that fn took.
func fetch(l *link, topic string, span sink.Span, fn func(offset int64, at time.Time, rec *sarama.Record) error) (next int64, err error) {
	for next = span.Begin; next < span.End; {
		req := &sarama.FetchRequest{Version: fetchVersion, MaxWaitTime: 500, MinBytes: 1, MaxBytes: fetchBytes, SessionEpoch: -1}
		req.AddBlock(topic, span.Partition, next, fetchBytes, -1)
		res, err := l.Fetch(req)
		if err != nil {
			return next, err
		}
		block := res.GetBlock(topic, span.Partition)
		switch {
		case block == nil:
			return next, sarama.ErrIncompleteResponse
		case block.Err != sarama.ErrNoError:
			return next, errorOf(block.Err)
		}
		began := next
		for _, set := range block.RecordsSet {
			b := set.RecordBatch
			if b == nil || b.PartialTrailingRecord || b.LastOffset() < next {
				continue
			}
			for _, rec := range b.Records {
				offset := b.FirstOffset + rec.OffsetDelta
				if offset < next || offset >= span.End || b.Control {
					continue
				}
				if err := fn(offset, b.FirstTimestamp.Add(rec.TimestampDelta), rec); err != nil {
					return next, err
				}
				next = offset + 1
			}
			next = b.LastOffset() + 1
		}
		if next == began { // compaction has left nothing up to the end
			return span.End, nil
		}
	}
	return next, nil
}

// provide creates the topic if it does not exist. It returns nil once the topic has a
// leader.
func (c *cluster) provide(ctx context.Context, topic string, log *slog.Logger) error {
	if err := c.refresh(ctx, []string{topic}); err != nil {
		return err
	}
	info := c.topic(topic)
	if info.err == sarama.ErrUnknownTopicOrPartition {
		if err := c.createCompacted(ctx, topic); err != nil {
			return err
		}
		log.InfoContext(ctx, "topic created", slog.String("topic", topic), slog.String("cleanup_policy", compact))
		return c.awaitLeader(ctx, topic)
	}
	if err := info.led(0); err != nil {
		return err
	}
	return c.checkCompacted(ctx, topic, log)
}

// awaitLeader waits for the leader of a topic that was just created: it takes a moment, and
// is no trouble.
func (c *cluster) awaitLeader(ctx context.Context, topic string) error {
	for attempt := range 8 {
		if !sleepUntil(ctx, time.Now().Add(time.Millisecond<<attempt)) {
			return context.Cause(ctx)
		}
		if err := c.refresh(ctx, []string{topic}); err != nil {
			return err
		}
		if info := c.topic(topic); info.led(0) == nil {
			return nil
		}
	}
	return errorOf(sarama.ErrLeaderNotAvailable)
}

const (
	cleanupPolicy = "cleanup.policy"
	compact       = "compact"
)

// createCompacted creates topic with settings that keep it short: compaction never touches
// the segment being written, which by default lasts a week.
func (c *cluster) createCompacted(ctx context.Context, topic string) error {
	policy, segment, dirty := compact, "3600000", "0.1"
	failed, err := c.createTopics(ctx, map[string]*sarama.TopicDetail{topic: {
		NumPartitions: 1, ReplicationFactor: -1,
		ConfigEntries: map[string]*string{cleanupPolicy: &policy, "segment.ms": &segment, "min.cleanable.dirty.ratio": &dirty},
	}})
	if err != nil {
		return err
	}
	return failed[topic]
}

// checkCompacted logs a warning if values of the topic may expire.
func (c *cluster) checkCompacted(ctx context.Context, topic string, log *slog.Logger) error {
	return c.control.do(ctx, func(l *link) error {
		values, err := describeTopics(l, cleanupPolicy, topic)
		if policy, told := values[topic]; told && policy != compact {
			log.WarnContext(ctx, "the topic is not compacted only: what is kept there may expire",
				slog.String("topic", topic), slog.String("cleanup_policy", policy))
		}
		return err
	})
}
