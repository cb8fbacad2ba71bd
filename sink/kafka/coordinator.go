package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// concurrentRetry returns how long to wait, after so many earlier attempts, for a coordinator that is still completing the
// last transaction. That takes a few milliseconds, because it writes to every partition of the transaction, and longer if
// one of them has no leader.
func concurrentRetry(attempts int) time.Duration {
	return time.Millisecond * time.Duration(min(1+attempts/10, 20))
}

// A coordinator sends requests to the broker that coordinates the transactions of a transactional id. One goroutine at
// a time uses it. Protocol: KIP-98, as of Kafka 3.6; a response with an error code becomes a [*codeError].
type coordinator struct {
	client *client
	id     string
	link   *link // nil: not connected
}

// do sends a request once. After an error, the next call looks for the coordinator again, unless the coordinator itself
// has responded that it is busy.
func (c *coordinator) do(ctx context.Context, request func(l *link) error) error {
	if c.link == nil {
		l, err := c.connect(ctx)
		if err != nil {
			return err
		}
		c.link = l
	}
	err := c.link.use(ctx, request)
	if err != nil && !isConcurrent(err) {
		err = c.requestError(err)
		c.disconnect()
	}
	return err
}

func (c *coordinator) requestError(err error) error {
	if _, answered := errors.AsType[*codeError](err); answered {
		return err
	}
	return requestError(c.link.addr, err, c.client.connector.sasl != nil)
}

// isConcurrent reports whether the coordinator is still completing the last transaction.
func isConcurrent(err error) bool {
	code, ok := errors.AsType[*codeError](err)
	return ok && code.code == sarama.ErrConcurrentTransactions
}

// connect finds the coordinator and connects to it.
func (c *coordinator) connect(ctx context.Context) (*link, error) {
	var res *sarama.FindCoordinatorResponse
	err := c.client.control.do(ctx, func(l *link) (err error) {
		res, err = l.FindCoordinator(&sarama.FindCoordinatorRequest{
			Version: 2, CoordinatorKey: c.id, CoordinatorType: sarama.CoordinatorTransaction,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if res.Err != sarama.ErrNoError {
		return nil, c.named(errorSaying(res.Err, textOf(res.ErrMsg)))
	}
	l, err := c.client.connector.connect(ctx, res.Coordinator.Addr(), controlTimeout)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// disconnect closes the connection, if there is one.
func (c *coordinator) disconnect() {
	if c.link != nil {
		_ = c.link.Close() // its error does not matter
		c.link = nil
	}
}

// errorOf returns an error code that is about the transactional id.
func (c *coordinator) errorOf(k sarama.KError) error {
	if k == sarama.ErrNoError {
		return nil
	}
	return c.named(errorOf(k))
}

func (c *coordinator) named(err error) error { return fmt.Errorf("transactional id %s: %w", c.id, err) }

// initProducer ends the transaction of every other producer with the transactional id, and returns the identity of
// the next producer. It blocks while the coordinator completes a transaction.
func (c *coordinator) initProducer(ctx context.Context, timeout time.Duration) (identity, error) {
	var next identity
	req := &sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &c.id, TransactionTimeout: timeout, ProducerID: -1, ProducerEpoch: -1,
	}
	for attempts := 0; ; attempts++ {
		err := c.do(ctx, func(l *link) error {
			res, err := l.InitProducerID(req)
			if err != nil {
				return err
			}
			next = identity{id: res.ProducerID, epoch: res.ProducerEpoch}
			return c.errorOf(res.Err)
		})
		if !isConcurrent(err) {
			return next, err
		}
		if !sleepUntil(ctx, time.Now().Add(concurrentRetry(attempts))) {
			return next, context.Cause(ctx)
		}
	}
}

// addPartitions adds partitions to the transaction of a producer. The first ones begin it.
func (c *coordinator) addPartitions(ctx context.Context, id identity, partitions map[string][]int32) error {
	req := &sarama.AddPartitionsToTxnRequest{
		Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TopicPartitions: partitions,
	}
	return c.do(ctx, func(l *link) error {
		res, err := l.AddPartitionsToTxn(req)
		if err != nil {
			return err
		}
		return c.firstError(res.Errors)
	})
}

// firstError returns the error of a partition. If one partition has an error, none was added, and the others have
// OPERATION_NOT_ATTEMPTED.
func (c *coordinator) firstError(codes map[string][]*sarama.PartitionError) error {
	for topic, partitions := range codes {
		for _, p := range partitions {
			switch k := p.Err; k { //nolint:exhaustive // see default
			case sarama.ErrNoError, sarama.ErrOperationNotAttempted:
			case sarama.ErrTopicAuthorizationFailed, sarama.ErrUnknownTopicOrPartition:
				return fmt.Errorf("topic %s, partition %d: %w", topic, p.Partition, errorOf(k))
			default:
				return c.errorOf(k)
			}
		}
	}
	return nil
}

// endTransaction commits or aborts the transaction of a producer. If a response was lost, it must be called again: the
// coordinator gives the same answer until the next transaction begins.
func (c *coordinator) endTransaction(ctx context.Context, id identity, commit bool) error {
	req := &sarama.EndTxnRequest{
		Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TransactionResult: commit,
	}
	return c.do(ctx, func(l *link) error {
		res, err := l.EndTxn(req)
		if err != nil {
			return err
		}
		return c.errorOf(res.Err)
	})
}
