package kafka

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// MayTransact checks whether the relay with the given name may use its transactional id, and whether the brokers are
// new enough for exactly once. It affects no relay: it asks to end a transaction of a producer that does not exist. It
// retries transient errors until ctx ends.
func (i *Inspector) MayTransact(ctx context.Context, name string) error {
	c := &coordinator{client: i.client, id: TransactionalID(name)}
	defer c.disconnect()
	return i.client.retryTransient(ctx, func() error {
		if err := c.checkVersion(ctx); err != nil {
			return err
		}
		err := c.endTransaction(ctx, identity{id: math.MaxInt64}, true)
		if code, ok := errors.AsType[*codeError](err); ok && code.code == sarama.ErrInvalidProducerIDMapping {
			return nil
		}
		return err
	})
}

// MaxTransactionTimeout returns transaction.max.timeout.ms of a broker. known is false if the user may not read it.
func (i *Inspector) MaxTransactionTimeout(ctx context.Context, b Broker) (timeout time.Duration, known bool, err error) {
	const setting = "transaction.max.timeout.ms"
	l, err := i.client.connector.connect(ctx, b.Addr, controlTimeout)
	if err != nil {
		return 0, false, err
	}
	l.conn.closeWith(ctx)
	defer func() { _ = l.Close() }()
	res, err := l.DescribeConfigs(&sarama.DescribeConfigsRequest{Version: 1, Resources: []*sarama.ConfigResource{{
		Type: sarama.BrokerResource, Name: strconv.Itoa(int(b.ID)), ConfigNames: []string{setting},
	}}})
	if err != nil {
		return 0, false, err
	}
	for _, r := range res.Resources {
		for _, entry := range r.Configs {
			if ms, err := strconv.ParseInt(entry.Value, 10, 64); err == nil && entry.Name == setting {
				return time.Duration(ms) * time.Millisecond, true, nil
			}
		}
	}
	return 0, false, nil
}
