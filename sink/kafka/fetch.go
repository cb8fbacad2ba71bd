package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// leaderOf connects to the leader of partition 0 of a topic.
func (c *client) leaderOf(ctx context.Context, topic string) (*link, error) {
	if err := c.cluster.refresh(ctx, []string{topic}); err != nil {
		return nil, err
	}
	info := c.cluster.topic(topic)
	if err := info.leaderError(0); err != nil {
		return nil, err
	}
	l, err := c.connector.connect(ctx, c.cluster.address(info.leaders[0].node), controlTimeout)
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

// offsetsAt returns the oldest or newest offsets of partitions with the same leader. With sarama.ReadCommitted, the
// newest is the first offset of the oldest open transaction, if there is one.
func offsetsAt(l *link, parts []topicPartition, at int64, isolation sarama.IsolationLevel) ([]int64, error) {
	req := sarama.NewOffsetRequest(protocol())
	req.IsolationLevel = isolation
	for _, p := range parts {
		req.AddBlock(p.topic, p.id, at, 1)
	}
	res, err := l.GetAvailableOffsets(req)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(parts))
	for i, p := range parts {
		block := res.GetBlock(p.topic, p.id)
		switch {
		case block == nil:
			return nil, sarama.ErrIncompleteResponse
		case block.Err != sarama.ErrNoError:
			return nil, errorOf(block.Err)
		}
		offsets[i] = block.Offset
	}
	return offsets, nil
}

// offsetAt is offsetsAt for one partition.
func offsetAt(l *link, topic string, partition int32, at int64, isolation sarama.IsolationLevel) (int64, error) {
	offsets, err := offsetsAt(l, []topicPartition{{topic, partition}}, at, isolation)
	if err != nil {
		return 0, err
	}
	return offsets[0], nil
}

// A fetchedRecord is a record of a partition, or a control record, which ends a transaction.
type fetchedRecord struct {
	*sarama.Record

	batch *sarama.RecordBatch
}

func (r *fetchedRecord) offset() int64 { return r.batch.FirstOffset + r.OffsetDelta }

func (r *fetchedRecord) timestamp() time.Time { return r.batch.FirstTimestamp.Add(r.TimestampDelta) }

// fetchBlock fetches from the batch on that has the offset from. It returns at least one batch, unless there is none within the
// time wait.
func fetchBlock(l *link, part topicPartition, from int64, bytes int32, wait time.Duration, isolation sarama.IsolationLevel) (*sarama.FetchResponseBlock, error) {
	req := &sarama.FetchRequest{
		Version: fetchVersion, MaxWaitTime: int32(wait.Milliseconds()), MinBytes: 1, MaxBytes: bytes, SessionEpoch: -1, Isolation: isolation,
	}
	req.AddBlock(part.topic, part.id, from, bytes, -1)
	res, err := l.Fetch(req)
	if err != nil {
		return nil, err
	}
	block := res.GetBlock(part.topic, part.id)
	switch {
	case block == nil:
		return nil, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return nil, errorOf(block.Err)
	}
	return block, nil
}

// fetchRecords calls fn with each record of offsets. With sarama.ReadCommitted, these are the records that consumers see.
// With sarama.ReadUncommitted, they include the records of open and aborted transactions, and control records.
// fetchRecords returns the offset after the last record for which fn returned nil. An error that wraps errEmptyAnswer says that
// the broker has returned nothing although the range goes on.
func fetchRecords(l *link, topic string, offsets sink.OffsetRange, isolation sarama.IsolationLevel, fn func(r fetchedRecord) error) (next int64, err error) {
	empty := 0 // answers in a row
	for next = offsets.Begin; next < offsets.End; {
		block, err := fetchBlock(l, topicPartition{topic, offsets.Partition}, next, fetchBytes, 500*time.Millisecond, isolation)
		if err != nil {
			return next, err
		}
		began := next
		hidden := abortedBatches(block)
		for _, set := range block.RecordsSet {
			b := set.RecordBatch
			if b == nil || b.PartialTrailingRecord || b.LastOffset() < next || b.FirstOffset >= offsets.End {
				continue // those after the range were stored since its end was read
			}
			skip := isolation == sarama.ReadCommitted && (b.Control || hidden[b])
			for _, rec := range b.Records {
				r := fetchedRecord{rec, b}
				offset := r.offset()
				if offset < next || offset >= offsets.End || skip {
					continue
				}
				if err := fn(r); err != nil {
					return next, err
				}
				next = offset + 1
			}
			next = min(b.LastOffset()+1, offsets.End)
		}
		if next > began {
			empty = 0
		} else if next = min(behindEmptied(block, next), offsets.End); next == began {
			if empty++; empty == maxEmpty {
				return next, fmt.Errorf("%w: partition %d from offset %d on", errEmptyAnswer, offsets.Partition, next)
			}
		}
	}
	return next, nil
}

// maxEmpty is how many answers without records are accepted in a row. The broker waits before it sends one.
const maxEmpty = 3

// errEmptyAnswer: a broker may answer without records although there are some, for example while it reads from remote storage
// (KIP-405). This says nothing about the end of the partition.
var errEmptyAnswer = errors.New("the broker returns no records")

// behindEmptied returns the offset behind the batches at the offset next whose records compaction has removed, or next if the
// block has none.
func behindEmptied(block *sarama.FetchResponseBlock, next int64) int64 {
	if len(block.RecordsSet) == 0 {
		return max(next, nextOffsetOf(block))
	}
	for _, set := range block.RecordsSet { // sarama leaves out batches without records
		switch {
		case set.RecordBatch != nil:
			next = max(next, set.RecordBatch.FirstOffset)
		case set.MsgSet != nil && len(set.MsgSet.Messages) > 0: // of format 0 or 1, which no relay writes
			next = max(next, set.MsgSet.Messages[len(set.MsgSet.Messages)-1].Offset+1)
		}
	}
	return next
}

// abortedBatches returns the batches of a response whose transactions were aborted. The response names the producer of
// such a transaction and its first offset; its abort marker is the next control batch of that producer.
func abortedBatches(block *sarama.FetchResponseBlock) map[*sarama.RecordBatch]bool {
	if len(block.AbortedTransactions) == 0 {
		return nil
	}
	left := slices.Clone(block.AbortedTransactions)
	slices.SortFunc(left, func(a, b *sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	aborting, aborted := make(map[int64]bool), make(map[*sarama.RecordBatch]bool)
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			continue
		}
		for len(left) > 0 && left[0].FirstOffset <= b.LastOffset() {
			aborting[left[0].ProducerID] = true
			left = left[1:]
		}
		switch {
		case b.Control:
			delete(aborting, b.ProducerID)
		case b.IsTransactional && aborting[b.ProducerID]:
			aborted[b] = true
		}
	}
	return aborted
}
