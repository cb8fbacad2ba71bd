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

// The leaders are connections to the leaders of partitions. One goroutine at a time uses them.
type leaders struct {
	client *client
	links  map[int32]*link // by broker id
}

func leadersFrom(c *client) leaders { return leaders{c, make(map[int32]*link)} }

// use calls request with a connection to the leader of a partition. It requests the leader only if there is no connection to the
// one that is known: an error closes it.
func (s *leaders) use(ctx context.Context, topic string, partition int32, request func(l *link) error) error {
	c := s.client.cluster
	info := c.topic(topic)
	if info.leaderError(partition) != nil || s.links[info.leaders[partition].node] == nil {
		if err := c.refresh(ctx, []string{topic}); err != nil {
			return err
		}
		info = c.topic(topic)
	}
	if err := info.leaderError(partition); err != nil {
		return err
	}
	return s.onBroker(ctx, info.leaders[partition].node, request)
}

// onBroker calls request with the connection to a broker, which it closes after an error.
func (s *leaders) onBroker(ctx context.Context, node int32, request func(l *link) error) error {
	l := s.links[node]
	if l == nil {
		var err error
		if l, err = s.client.connector.connect(ctx, s.client.cluster.address(node), controlTimeout); err != nil {
			return err
		}
		s.links[node] = l
	}
	err := l.use(ctx, request)
	if err != nil {
		_ = l.Close() // broken as it is
		delete(s.links, node)
	}
	return err
}

// close closes the connections.
func (s *leaders) close() {
	for _, l := range s.links {
		_ = l.Close() // no request is in flight
	}
	clear(s.links)
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

const (
	fetchBytes   = 1 << 20
	fetchVersion = 11 // the last version before flexible ones; negotiated downwards

	// fetchWait is how long a broker waits for records before it answers that there are none.
	fetchWait = 500 * time.Millisecond
)

// fetchBlock fetches from the batch on that has the offset from. It returns at least one batch, unless there is none within
// fetchWait.
func fetchBlock(l *link, part topicPartition, from int64, bytes int32, isolation sarama.IsolationLevel) (*sarama.FetchResponseBlock, error) {
	req := &sarama.FetchRequest{
		Version: fetchVersion, MaxWaitTime: int32(fetchWait.Milliseconds()), MinBytes: 1, MaxBytes: bytes, SessionEpoch: -1, Isolation: isolation,
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

// fetchBatches fetches the batches from the one that has the offset from, and returns the offset behind them. That is from if
// the broker returns nothing. With sarama.ReadCommitted, only batches that consumers see are among them. Batches that compaction
// has emptied are left out.
func fetchBatches(l *link, part topicPartition, from int64, bytes int32, isolation sarama.IsolationLevel) (batches []*sarama.RecordBatch, behind int64, err error) {
	block, err := fetchBlock(l, part, from, bytes, isolation)
	if err != nil {
		return nil, from, err
	}
	if len(block.RecordsSet) == 0 { // sarama leaves out batches without records
		return nil, max(from, nextOffsetOf(block)), nil
	}
	aborted := abortedBatches(block)
	behind = from
	for _, set := range block.RecordsSet {
		switch b := set.RecordBatch; {
		case b != nil && b.PartialTrailingRecord: // those before it may be empty
			behind = max(behind, b.FirstOffset)
		case b != nil && b.LastOffset() >= from:
			behind = b.LastOffset() + 1
			if isolation == sarama.ReadUncommitted || !b.Control && !aborted[b] {
				batches = append(batches, b)
			}
		case set.MsgSet != nil && len(set.MsgSet.Messages) > 0: // of format 0 or 1, which no relay writes
			behind = max(behind, set.MsgSet.Messages[len(set.MsgSet.Messages)-1].Offset+1)
		}
	}
	return batches, behind, nil
}

// fetchRecords calls fn with each record of offsets. With sarama.ReadCommitted, these are the records that consumers see.
// With sarama.ReadUncommitted, they include the records of open and aborted transactions, and control records.
// fetchRecords returns the offset after the last record for which fn returned nil. An error that wraps errEmptyAnswer says that
// the broker has returned nothing although the range goes on.
func fetchRecords(l *link, topic string, offsets sink.OffsetRange, isolation sarama.IsolationLevel, fn func(r fetchedRecord) error) (next int64, err error) {
	empty := 0 // answers in a row
	for next = offsets.Begin; next < offsets.End; {
		batches, behind, err := fetchBatches(l, topicPartition{topic, offsets.Partition}, next, fetchBytes, isolation)
		if err != nil {
			return next, err
		}
		empty++
		if behind > next {
			empty = 0
		} else if empty == maxEmpty {
			return next, fmt.Errorf("%w: partition %d from offset %d on", errEmptyAnswer, offsets.Partition, next)
		}
		for _, b := range batches {
			for _, rec := range b.Records {
				r := fetchedRecord{rec, b}
				offset := r.offset()
				if offset < next || offset >= offsets.End { // the latter were stored since the end was read
					continue
				}
				if err := fn(r); err != nil {
					return next, err
				}
				next = offset + 1
			}
		}
		next = min(behind, offsets.End)
	}
	return next, nil
}

// maxEmpty is how many answers without records are accepted in a row. The broker waits before it sends one.
const maxEmpty = 3

// errEmptyAnswer: a broker may answer without records although there are some, for example while it reads from remote storage
// (KIP-405). This says nothing about the end of the partition.
var errEmptyAnswer = errors.New("the broker returns no records")

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
