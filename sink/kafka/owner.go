package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// TransactionalID returns the transactional.id of the relay with the given name. Relays of different databases may have
// the same name, but not in the same position topic.
func TransactionalID(positionTopic, name string) string { return positionTopic + "/" + name }

// transactionTimeout is how long the empty transaction of a resumption may be open. Then the coordinator shuts us out.
const transactionTimeout = 10 * time.Second

// An ownership is the place of an owner among those of a relay: the transaction coordinator gives each the next epoch of the
// relay's producer id (KIP-360). The producers of the owner share it: that of the rows and that of the position topic.
type ownership struct {
	coordinator coordinator
	first       bool           // the relay has had no owner before, so nothing is contested
	ids         map[int64]bool // producer ids of the relay, also earlier ones

	turn   chan struct{} // cap 1: held while the coordinator is used
	newest identity      // used by the holder of turn
}

// lock waits for the turn to use the coordinator. It returns the newest identity.
func (o *ownership) lock(ctx context.Context) (identity, error) {
	select {
	case o.turn <- struct{}{}:
		return o.newest, nil
	case <-ctx.Done():
		return identity{}, context.Cause(ctx)
	}
}

func (o *ownership) unlock() { <-o.turn }

// next returns the newest identity or, if that is have, raises it. The error wraps sink.ErrSuperseded if there is a newer owner.
func (o *ownership) next(ctx context.Context, have identity) (identity, error) {
	newest, err := o.lock(ctx)
	if err != nil {
		return identity{}, err
	}
	defer o.unlock()
	if newest != have {
		return newest, nil
	}
	next, err := o.coordinator.initProducer(ctx, newest)
	if err != nil {
		return identity{}, o.coordinator.ownershipError(err)
	}
	o.newest = next
	o.ids[next.id] = true
	return next, nil
}

// disconnect closes the connection to the coordinator.
func (o *ownership) disconnect() {
	o.turn <- struct{}{}
	o.coordinator.disconnect()
	o.unlock()
}

// succeed makes the caller the newest owner: no producer of an earlier one can write to the position topic any more, and reader
// has read what they have written. It returns nil if the broker will never let the relay use its transactional id.
func (s *positionStore) succeed(ctx context.Context) (*ownership, error) {
	next := &ownership{
		coordinator: coordinator{client: s.client, id: TransactionalID(s.topic, s.name)}, ids: make(map[int64]bool), turn: make(chan struct{}, 1),
	}
	err := s.client.retryTransient(ctx, func() (err error) {
		next.newest, err = next.coordinator.initProducer(ctx, identity{-1, -1})
		return err
	})
	if reason, ok := cannotOwn(err); ok {
		next.coordinator.disconnect()
		s.warnUnowned(ctx, reason)
		return nil, nil
	}
	if err == nil {
		err = s.shutOut(ctx, next)
	}
	if err != nil {
		next.coordinator.disconnect()
		return nil, err
	}
	// The coordinator gives out another producer id if it has forgotten the transactional id, or if the epochs are used up.
	next.first = next.newest.epoch == 0 && len(s.reader.producers) == 0
	maps.Copy(next.ids, s.reader.producers)
	next.ids[next.newest.id] = true
	return next, nil
}

// shutOut has the coordinator write a marker to the position topic, and reads up to it. s.reading is held.
func (s *positionStore) shutOut(ctx context.Context, o *ownership) error {
	err := s.client.retryTransient(ctx, func() error { return s.writeMarker(ctx, o) })
	if err != nil {
		return err
	}
	s.reader.marker = identity{o.newest.id, -1}
	for attempts := 0; ; attempts++ {
		if err := s.client.retryTransient(ctx, func() error { return s.reader.readNew(ctx, &s.leaders) }); err != nil {
			return err
		}
		switch found := s.reader.marker.epoch; {
		case found == o.newest.epoch:
			return nil
		case found > o.newest.epoch:
			return o.coordinator.superseded(fmt.Errorf("the position topic has the marker of epoch %d, ours is %d", found, o.newest.epoch))
		}
		if !sleepUntil(ctx, time.Now().Add(concurrentRetry(attempts))) {
			return fmt.Errorf("%w: %w", errMarkerMissing, context.Cause(ctx))
		}
	}
}

// writeMarker ends an empty transaction of o in the position topic.
func (s *positionStore) writeMarker(ctx context.Context, o *ownership) error {
	return o.coordinator.ownershipError(o.coordinator.markPartition(ctx, o.newest, topicPartition{s.topic, 0}))
}

// keepInterval is how often an idle owner writes a marker. Brokers forget a transactional id after transactional.id.expiration.ms
// (a week), and the epoch of a producer in a partition after producer.id.expiration.ms (a day).
// https://kafka.apache.org/documentation/#brokerconfigs_transactional.id.expiration.ms
const keepInterval = 8 * time.Hour

// keep keeps the transactional id and the epoch in the position topic until ctx ends.
func (o *owner) keep(ctx context.Context) {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if _, err := o.ownership.lock(ctx); err != nil {
			return
		}
		o.ownership.coordinator.disconnect() // the broker has closed an idle connection
		err := o.store.client.retryTransient(ctx, func() error { return o.store.writeMarker(ctx, o.ownership) })
		o.ownership.unlock()
		if errors.Is(err, sink.ErrSuperseded) {
			o.setFailure(err)
			return
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

// warnUnowned logs, once, what is lost without an identity. s.reading is held.
func (s *positionStore) warnUnowned(ctx context.Context, reason error) {
	if s.warned {
		return
	}
	s.warned = true
	s.client.log.WarnContext(ctx, "after a crash, about a second of records may be duplicated: the relay cannot use its transactional id",
		slog.Any("err", reason), slog.String("fix", "grant Write and Describe on transactional id "+TransactionalID(s.topic, s.name)))
}
