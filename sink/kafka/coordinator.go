package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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

// superseded returns the error of an owner that a newer one has shut out, which shows in cause.
func (c *coordinator) superseded(cause error) error { return &supersededError{c.id, c.named(cause)} }

// ownershipError returns err, which is of a request to the coordinator, or an error that wraps sink.ErrSuperseded if err says that
// there is a newer owner.
func (c *coordinator) ownershipError(err error) error {
	if code, ok := errors.AsType[*codeError](err); ok && classify(code.code) == superseded {
		return &supersededError{c.id, err}
	}
	return err
}

// initProducer ends the transaction of every other producer with the transactional id, and returns the identity of
// the next producer. It blocks while the coordinator completes a transaction. last is {-1, -1} for a new owner, and otherwise
// its identity: the coordinator rejects it if there is a newer one.
func (c *coordinator) initProducer(ctx context.Context, last identity) (identity, error) {
	var next identity
	req := &sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &c.id, TransactionTimeout: transactionTimeout, ProducerID: last.id, ProducerEpoch: last.epoch,
	}
	err := c.whileConcurrent(ctx, time.Time{}, func() error {
		return c.do(ctx, func(l *link) error {
			res, err := l.InitProducerID(req)
			if err != nil {
				return err
			}
			next = identity{id: res.ProducerID, epoch: res.ProducerEpoch}
			return c.errorOf(res.Err)
		})
	})
	return next, err
}

// whileConcurrent calls request again while the coordinator is still completing the last transaction, but not after until
// unless that is zero.
func (c *coordinator) whileConcurrent(ctx context.Context, until time.Time, request func() error) error {
	for attempts := 0; ; attempts++ {
		if err := request(); !isConcurrent(err) || !until.IsZero() && time.Now().After(until) {
			return err
		}
		if !sleepUntil(ctx, time.Now().Add(concurrentRetry(attempts))) {
			return context.Cause(ctx)
		}
	}
}

// mayInit checks whether the user may call initProducer, and changes nothing: a broker checks the right, then the timeout,
// and the timeout of the request is longer than any broker allows. If one did not check it, it would still reject a producer
// id that it has not given to anybody.
func (c *coordinator) mayInit(ctx context.Context) error {
	req := &sarama.InitProducerIDRequest{
		Version: 4, TransactionalID: &c.id, TransactionTimeout: math.MaxInt32 * time.Millisecond, ProducerID: math.MaxInt64,
	}
	return c.do(ctx, func(l *link) error {
		res, err := l.InitProducerID(req)
		if err != nil {
			return err
		}
		switch res.Err { //nolint:exhaustive // the others say that the relay could not call initProducer
		case sarama.ErrInvalidTransactionTimeout, sarama.ErrInvalidProducerEpoch, sarama.ErrProducerFenced, sarama.ErrInvalidProducerIDMapping,
			sarama.ErrConcurrentTransactions:
			return nil
		}
		return c.errorOf(res.Err)
	})
}

// addPartitions adds partitions to the transaction of a producer. The first ones begin it. If one is refused, none is added.
func (c *coordinator) addPartitions(ctx context.Context, id identity, partitions []topicPartition) (refused map[topicPartition]error, err error) {
	req := &sarama.AddPartitionsToTxnRequest{
		Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TopicPartitions: make(map[string][]int32),
	}
	for _, at := range partitions {
		req.TopicPartitions[at.topic] = append(req.TopicPartitions[at.topic], at.id)
	}
	err = c.do(ctx, func(l *link) error {
		res, err := l.AddPartitionsToTxn(req)
		if err != nil {
			return err
		}
		refused, err = c.refusals(res.Errors)
		return err
	})
	return refused, err
}

// refusals returns the errors of partitions. err is one that is not about a partition.
func (c *coordinator) refusals(codes map[string][]*sarama.PartitionError) (refused map[topicPartition]error, err error) {
	for topic, partitions := range codes {
		for _, p := range partitions {
			switch k := p.Err; k { //nolint:exhaustive // see default
			case sarama.ErrNoError, sarama.ErrOperationNotAttempted:
			case sarama.ErrTopicAuthorizationFailed, sarama.ErrUnknownTopicOrPartition:
				if refused == nil {
					refused = make(map[topicPartition]error)
				}
				refused[topicPartition{topic, p.Partition}] = errorOf(k)
			default:
				return nil, c.errorOf(k)
			}
		}
	}
	return refused, nil
}

// markPartition ends an empty transaction of a producer in a partition. The marker may follow the answer of the coordinator.
func (c *coordinator) markPartition(ctx context.Context, id identity, at topicPartition) error {
	err := c.whileConcurrent(ctx, time.Time{}, func() error {
		refused, err := c.addPartitions(ctx, id, []topicPartition{at})
		return cmp.Or(err, refused[at])
	})
	if err != nil {
		return err
	}
	return c.abortTransaction(ctx, id)
}

// abortTransaction aborts the transaction of a producer.
func (c *coordinator) abortTransaction(ctx context.Context, id identity) error {
	req := &sarama.EndTxnRequest{
		Version: 3, TransactionalID: c.id, ProducerID: id.id, ProducerEpoch: id.epoch, TransactionResult: false,
	}
	return c.do(ctx, func(l *link) error {
		res, err := l.EndTxn(req)
		if err != nil {
			return err
		}
		return c.errorOf(res.Err)
	})
}
