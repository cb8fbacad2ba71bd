package kafka

import (
	"context"
	"encoding/json"
)

// A transactionalIdentity is the result of [sink.PositionStore.NextIdentity] with transactions, as JSON. It has no
// member "id" like an identityBlock, so that a version without transactions rejects it: the epochs of this producer id
// belong to the transaction coordinator.
type transactionalIdentity struct {
	TransactionalID string `json:"transactional_id"`
	ProducerID      int64  `json:"producer_id"`
	Epoch           int16  `json:"epoch"`
}

// nextTransactional is NextIdentity with transactions.
func (s *positionStore) nextTransactional(ctx context.Context) ([]byte, error) {
	id := TransactionalID(s.name)
	var next identity
	err := s.client.retryTransient(ctx, func() (err error) {
		next, err = s.endTransactions(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(transactionalIdentity{id, next.id, next.epoch})
}

// endTransactions ends the transactions of every earlier producer with a transactional id, and returns the identity of
// the next one.
func (s *positionStore) endTransactions(ctx context.Context, transactionalID string) (identity, error) {
	c := &coordinator{client: s.client, id: transactionalID}
	defer c.disconnect()
	return c.initProducer(ctx, s.client.cfg.TransactionTimeout)
}

// checkTransactions returns an error if the cluster is too old for transactions, or if the user may not use the
// transactional id of a relay.
func (c *client) checkTransactions(ctx context.Context, name string) error {
	to := &coordinator{client: c, id: TransactionalID(name)}
	defer to.disconnect()
	return c.retryTransient(ctx, func() error { return to.checkVersion(ctx) })
}
