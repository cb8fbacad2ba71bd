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

// CheckOrder implements [sink.PositionStore]. It writes tombstones, which compaction removes, with a transactional id of its
// own, so that the result affects no owner.
func (s *positionStore) CheckOrder(ctx context.Context) error {
	c := &coordinator{client: s.client, id: TransactionalID(s.topic, s.name) + "/probe"}
	defer c.disconnect()
	to := leadersFrom(s.client)
	defer to.close()
	var found error // nil, or a result
	err := s.client.retryTransient(ctx, func() error {
		return to.use(ctx, s.topic, 0, func(l *link) error {
			found = s.tryOrder(ctx, c, l)
			if errors.Is(found, errors.ErrUnsupported) || errors.Is(found, sink.ErrOlderAccepted) || errors.Is(found, sink.ErrNewerRejected) {
				return nil
			}
			return found
		})
	})
	return cmp.Or(err, found)
}

// tryOrder writes with an epoch, has the coordinator write a marker with the next one, and writes with both, the first one
// first. It returns an error of CheckOrder if the broker does not reject the first one, or rejects the next one. Any other error
// says that the check failed.
func (s *positionStore) tryOrder(ctx context.Context, c *coordinator, l *link) error {
	older, err := c.initProducer(ctx, identity{-1, -1})
	if reason, ok := cannotOwn(err); ok {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, reason)
	}
	if err != nil {
		return err
	}
	if err := writeTombstone(l, s.topic, older, 0); err != nil {
		return err
	}
	newer, err := c.initProducer(ctx, older)
	if err != nil {
		return err
	}
	err = c.markPartition(ctx, newer, topicPartition{s.topic, 0})
	if err == nil {
		newer, err = c.initProducer(ctx, newer) // returns after the marker is written
	}
	if err != nil {
		return err
	}
	if err := olderRejected(l, s.topic, older); err != nil {
		return err
	}
	return newerAccepted(l, s.topic, newer)
}

// newerAccepted returns an error that wraps sink.ErrNewerRejected if the broker rejects the first record of an epoch.
func newerAccepted(l *link, topic string, newer identity) error {
	err := writeTombstone(l, topic, newer, 0)
	if code, ok := errors.AsType[*codeError](err); ok {
		if c := classify(code.code); c == producerLost || c == superseded {
			return fmt.Errorf("%w: %w", sink.ErrNewerRejected, err)
		}
	}
	return err
}

// olderRejected returns sink.ErrOlderAccepted if the broker accepts the second record of an epoch.
func olderRejected(l *link, topic string, older identity) error {
	err := writeTombstone(l, topic, older, 1)
	if code, ok := errors.AsType[*codeError](err); ok && code.code == sarama.ErrInvalidProducerEpoch {
		return nil
	}
	return cmp.Or(err, sink.ErrOlderAccepted)
}

// writeTombstone writes a tombstone with orderKey to partition 0.
func writeTombstone(l *link, topic string, id identity, sequence int32) error {
	return writeRecord(l, topic, id, sequence, &sarama.Record{Key: []byte(orderKey)})
}

// writeRecord writes a record to partition 0. The error is a [*codeError] if the broker has responded.
func writeRecord(l *link, topic string, id identity, sequence int32, r *sarama.Record) error {
	now := time.Now()
	req := envelope()
	req.AddBatch(topic, 0, &sarama.RecordBatch{
		Version: 2, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: id.id, ProducerEpoch: id.epoch, FirstSequence: sequence,
		Records: []*sarama.Record{r},
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
