package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// orderKey is the key of what CheckOrder writes. No name begins with a slash, so Read passes over it.
const orderKey = "/order-check"

// CheckOrder implements [sink.PositionStore]. It writes tombstones, which compaction removes, under a
// producer id that nobody else uses: whatever the broker makes of them concerns no Writer.
func (s *positionStore) CheckOrder(ctx context.Context) error {
	var found error
	err := s.client.retryTransient(ctx, func() (err error) {
		found, err = s.tryOrder(ctx)
		return err
	})
	return cmp.Or(err, found)
}

// tryOrder writes under an epoch, under the next one, and under the first again. It returns in found
// what the broker does instead of rejecting the third, and in err why that is not known.
func (s *positionStore) tryOrder(ctx context.Context) (found, err error) {
	older, err := s.client.control.requestID(ctx)
	if err != nil {
		return nil, err
	}
	newer := identity{older.id, older.epoch + 1}
	l, err := s.client.leaderOf(ctx, s.topic, 0)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := writeTombstone(l, s.topic, older, 0); err != nil {
		return nil, err
	}
	if err := writeTombstone(l, s.topic, newer, 0); err != nil {
		if code, ok := errors.AsType[*codeError](err); ok && classify(code.code) == producerLost {
			return fmt.Errorf("%w: %w", sink.ErrNewerRejected, err), nil
		}
		return nil, err
	}
	err = writeTombstone(l, s.topic, older, 1)
	if code, ok := errors.AsType[*codeError](err); ok && code.code == sarama.ErrInvalidProducerEpoch {
		return nil, nil
	}
	if err == nil {
		found = sink.ErrOlderAccepted
	}
	return found, err
}

// writeTombstone writes a tombstone of orderKey to partition 0. Its error is a *[codeError] if the
// broker has answered.
func writeTombstone(l *link, topic string, id identity, sequence int32) error {
	now := time.Now()
	req := envelope()
	req.AddBatch(topic, 0, &sarama.RecordBatch{
		Version: 2, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: id.id, ProducerEpoch: id.epoch, FirstSequence: sequence,
		Records: []*sarama.Record{{Key: []byte(orderKey)}},
	})
	res, err := l.Produce(req)
	if err != nil {
		return err
	}
	switch block := res.GetBlock(topic, 0); {
	case block == nil:
		return sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return errorOf(block.Err)
	}
	return nil
}
