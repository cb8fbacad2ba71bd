package kafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// leaderOf connects to the leader of a partition.
func (c *client) leaderOf(ctx context.Context, topic string, partition int32) (*link, error) {
	if err := c.cluster.refresh(ctx, []string{topic}); err != nil {
		return nil, err
	}
	info := c.cluster.topic(topic)
	if err := info.leaderError(partition); err != nil {
		return nil, err
	}
	l, err := c.connector.connect(ctx, c.cluster.address(info.leaders[partition].node), controlTimeout)
	if err != nil {
		return nil, err
	}
	l.conn.closeWith(ctx)
	return l, nil
}

// leaderError returns why a partition has no leader, or nil if it has one.
func (i topicInfo) leaderError(partition int32) error {
	switch {
	case i.err != sarama.ErrNoError:
		return errorOf(i.err)
	case int(partition) >= len(i.leaders) || i.leaders[partition].node == noLeader:
		return errorOf(sarama.ErrLeaderNotAvailable)
	}
	return nil
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

// fetchRecords calls fn with each record of span. It returns the offset after the last record for which fn
// returned nil.
func fetchRecords(l *link, topic string, span sink.Span, fn func(offset int64, at time.Time, rec *sarama.Record) error) (next int64, err error) {
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
		if next == began { // compaction has removed all records up to the end
			return span.End, nil
		}
	}
	return next, nil
}
