package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// TransactionalID returns the transactional.id of the relay with the given name. Relays of different databases may have
// the same name, but not in the same position topic.
func TransactionalID(positionTopic, name string) string { return positionTopic + "/" + name }

// transactionTimeout is how long the empty transaction of a resumption may be open. Then the coordinator shuts us out.
const transactionTimeout = 10 * time.Second

// A relayIdentity is the result of [sink.PositionStore.NextIdentity], as JSON.
type relayIdentity struct {
	TransactionalID string `json:"transactional_id"`
	ProducerID      int64  `json:"producer_id"`
	Epoch           int16  `json:"epoch"`

	// Earlier are other producer ids of the relay, the newest first: the coordinator gives out another one if it has forgotten
	// the transactional id, or if the epochs are used up.
	Earlier []int64 `json:"earlier_producer_ids,omitempty"`
}

// maxEarlier limits relayIdentity.Earlier.
const maxEarlier = 3

// parseIdentity parses a result of NextIdentity.
func parseIdentity(data []byte) (relayIdentity, error) {
	r := relayIdentity{ProducerID: -1}
	err := json.Unmarshal(data, &r)
	if err == nil && (r.TransactionalID == "" || r.ProducerID < 0 || r.Epoch < 0) {
		err = fmt.Errorf("no producer: transactional_id %q, producer_id %d, epoch %d", r.TransactionalID, r.ProducerID, r.Epoch)
	}
	if err != nil {
		return r, fmt.Errorf("identity of a producer: %w", err)
	}
	return r, nil
}

// NextIdentity implements [sink.PositionStore]. The transaction coordinator orders the identities: it gives each caller the
// next epoch of the relay's producer id (KIP-360).
func (s *positionStore) NextIdentity(ctx context.Context, given ...[]byte) ([]byte, error) {
	r := relayIdentity{TransactionalID: TransactionalID(s.topic, s.name)}
	c := &coordinator{client: s.client, id: r.TransactionalID}
	defer c.disconnect()
	var next identity
	err := s.client.retryTransient(ctx, func() (err error) {
		next, err = c.initProducer(ctx, identity{-1, -1})
		return err
	})
	if reason, ok := cannotOwn(err); ok {
		s.warnUnowned(ctx, reason)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.ProducerID, r.Epoch = next.id, next.epoch
	for _, data := range slices.Backward(given) {
		if data == nil {
			continue
		}
		earlier, err := parseIdentity(data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFatal, err)
		}
		r.addEarlier(append([]int64{earlier.ProducerID}, earlier.Earlier...))
	}
	return json.Marshal(r)
}

// addEarlier adds those of ids that are new.
func (r *relayIdentity) addEarlier(ids []int64) {
	for _, id := range ids {
		if id != r.ProducerID && !slices.Contains(r.Earlier, id) && len(r.Earlier) < maxEarlier {
			r.Earlier = append(r.Earlier, id)
		}
	}
}

// cannotOwn returns the answer of a broker that will never give the relay an identity.
func cannotOwn(err error) (reason *codeError, ok bool) {
	if !errors.As(err, &reason) {
		return nil, false
	}
	return reason, reason.code == sarama.ErrTransactionalIDAuthorizationFailed || reason.code == sarama.ErrUnsupportedVersion
}

// warnUnowned logs, once, what is lost without an identity.
func (s *positionStore) warnUnowned(ctx context.Context, reason error) {
	s.mu.Lock()
	warned := s.warned
	s.warned = true
	s.mu.Unlock()
	if !warned {
		s.client.log.WarnContext(ctx, "after a crash, about a second of records may be sent twice: the relay cannot use its transactional id",
			slog.Any("err", reason), slog.String("fix", "grant Write and Describe on transactional id "+TransactionalID(s.topic, s.name)))
	}
}

// An owner is what a producer with an identity of NextIdentity needs to shut out earlier owners.
type owner struct {
	coordinator coordinator
	first       bool           // the relay has had no identity before, so nothing is contested
	identity    identity       // the newest one
	used        bool           // nextEpoch has returned identity
	ids         map[int64]bool // producer ids of the relay, also earlier ones
	names       namer
}

// newOwner returns the owner of a WriterConfig, or nil if it has no identity.
func (c *client) newOwner(cfg sink.WriterConfig) (*owner, error) {
	if cfg.Identity == nil {
		return nil, nil
	}
	r, err := parseIdentity(cfg.Identity)
	if err != nil {
		return nil, err
	}
	o := &owner{
		coordinator: coordinator{client: c, id: r.TransactionalID}, identity: identity{r.ProducerID, r.Epoch},
		ids: map[int64]bool{r.ProducerID: true}, names: namer{maphash.MakeSeed(), cfg.RowHeaders},
	}
	o.first = r.Epoch == 0 && len(r.Earlier) == 0
	for _, id := range r.Earlier {
		o.ids[id] = true
	}
	return o, nil
}

// nextEpoch returns the given identity, or the next one if that was used. The error wraps sink.ErrSuperseded if there is a
// newer owner.
func (o *owner) nextEpoch(ctx context.Context) (identity, error) {
	if o.used {
		next, err := o.coordinator.initProducer(ctx, o.identity)
		if err != nil {
			return identity{}, ownershipError(err)
		}
		o.identity, o.ids[next.id] = next, true
	}
	o.used = true
	return o.identity, nil
}
