package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An identity is a producer id and an epoch. Brokers count the sequences of a partition per identity.
//
// In a partition, a higher epoch of an id restarts the sequences, no matter which process raises it. The broker then rejects batches
// with a lower epoch in that partition. So a late request of a lost connection is not stored after its own retry,
// and records of an older process are not stored after those of a newer one (KIP-360, and ProducerAppendInfo of
// the broker).
type identity struct {
	id    int64
	epoch int16
}

// identities has the identities for producers without WriterConfig.Owner. It returns each identity only once: the
// next epoch of the same producer id, if possible.
type identities struct {
	control *control

	mu           sync.Mutex
	last         identity
	lastUnused   bool // nextIdentity has not returned last yet
	idsRequested int  // number of requested producer ids
}

// nextIdentity returns an unused identity: the next epoch or, if newID is set, one with another producer id.
func (i *identities) nextIdentity(ctx context.Context, newID bool) (identity, error) {
	i.mu.Lock()
	exhausted := i.idsRequested == 0 || !i.lastUnused && (newID || i.last.epoch == math.MaxInt16)
	i.mu.Unlock()
	if exhausted {
		if err := i.replaceID(ctx); err != nil {
			return identity{}, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.lastUnused {
		i.last.epoch++
	}
	i.lastUnused = false
	return i.last, nil
}

// replaceID requests another producer id.
func (i *identities) replaceID(ctx context.Context) error {
	id, err := i.control.requestID(ctx)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last, i.lastUnused = id, true
	i.idsRequested++
	return nil
}

// requestID requests a producer id from any broker: without a transactional id there is no
// coordinator.
func (c *control) requestID(ctx context.Context) (identity, error) {
	var res *sarama.InitProducerIDResponse
	err := c.do(ctx, func(l *link) (err error) {
		res, err = l.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
		return err
	})
	if err != nil {
		return identity{}, err
	}
	if res.Err != sarama.ErrNoError {
		return identity{}, fmt.Errorf("request a producer id: %w", errorOf(res.Err))
	}
	return identity{id: res.ProducerID, epoch: res.ProducerEpoch}, nil
}

// loseIdentity stops all sending until there is a new identity, because a broker does not know the last sequence of
// the producer. Batches of different identities must not be in flight together, because a late response could not be
// assigned. p.mu is held.
func (p *producer) loseIdentity(part *partition, sh *sentBatch) {
	if sh.class == superseded {
		if p.ownership != nil {
			p.stopSending(p.ownership.coordinator.superseded(fmt.Errorf("topic %s, partition %d: %w", part.topic.name, part.id, sh.err)))
			return
		}
		p.newIDRequired = true
	}
	if p.identityLost {
		return
	}
	p.identityLost = true
	name, id, err := part.topic.name, part.id, sh.err
	if p.ownership != nil {
		p.logLater(func(ctx context.Context) {
			p.log.InfoContext(ctx, "new producer epoch, a broker has lost the producer's state",
				slog.String("topic", name), slog.Int("partition", int(id)), slog.Any("err", err))
		})
		return
	}
	p.client.counters.renewals.Add(1)
	p.logLater(func(ctx context.Context) {
		p.log.WarnContext(ctx, "new producer epoch, unacknowledged records may be duplicated",
			slog.String("topic", name), slog.Int("partition", int(id)), slog.Any("err", err))
	})
}

// renewIdentity gets the next identity and lets the senders continue. Nothing may be in flight.
func (p *producer) renewIdentity(ctx context.Context) {
	start := time.Now()
	defer p.beginErrand("a request for a producer id")()
	id, err := p.nextIdentity(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		switch {
		case errors.Is(err, sink.ErrSuperseded):
			p.stopSending(err)
		case ctx.Err() == nil:
			p.identityRetry.recordFailure(err, start, time.Now(), rand.Float64())
			p.client.counters.recordError(err.Error())
		}
		return
	}
	if p.identityRetry.attempts > 0 {
		signal(p.wakeMonitor)
	}
	p.identity, p.identityAccepted, p.newIDRequired, p.identityRetry = id, false, false, retryState{}
	for part := range p.allParts {
		part.nextSequence = 0
		for _, b := range part.queue {
			b.sequence = noSequence
		}
	}
	p.contestSent()
	p.identityLost = false
	p.wakeSenders()
}

// nextIdentity returns an identity that this producer has not used.
func (p *producer) nextIdentity(ctx context.Context) (identity, error) {
	if p.ownership != nil {
		return p.ownership.next(ctx, p.currentIdentity())
	}
	p.mu.Lock()
	// If no batch was accepted with the last epoch, the next epoch may not help either.
	newID := p.newIDRequired || !p.identityAccepted && p.identity != identity{}
	p.mu.Unlock()
	return p.client.identities.nextIdentity(ctx, newID)
}

// currentIdentity returns the identity to send with. It locks p.mu.
func (p *producer) currentIdentity() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}
