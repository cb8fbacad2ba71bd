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

// orderKey is the key of the records of CheckOrder. No relay name starts with a slash, so Read ignores them.
const orderKey = "/order-check"

// CheckOrder implements [sink.PositionStore]. It writes tombstones, which compaction removes, with a new producer
// id, so that the result affects no Writer.
func (s *positionStore) CheckOrder(ctx context.Context) error {
	var found error
	err := s.client.retryTransient(ctx, func() (err error) {
		found, err = s.tryOrder(ctx)
		return err
	})
	return cmp.Or(err, found)
}

// tryOrder writes with an epoch, with the next one, and with the first one again. found is the result if the
// broker does not reject the third write. err says that the check failed.
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

// writeTombstone writes a tombstone with orderKey to partition 0. The error is a [*codeError] if the broker has
// responded.
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
