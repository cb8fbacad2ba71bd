package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// An identity is a producer id and epoch, under which brokers count the sequences of a partition.
type identity struct {
	id    int64
	epoch int16
}

// identities hands out identities, never the same twice.
//
// The next identity is the same producer id with the next epoch, where possible (KIP-360).
// A broker takes it as a new beginning, and it also refuses what is still on its way under
// the previous epoch: a request of a connection that was given up cannot enter the log
// behind its own repetition.
type identities struct {
	control *control

	mu           sync.Mutex
	last         identity
	lastUnused   bool // nextIdentity has not returned last yet
	idsRequested int  // producer ids that the cluster has given
}

// ensureID requests a producer id from the cluster if there is none yet.
func (i *identities) ensureID(ctx context.Context) error {
	i.mu.Lock()
	have := i.idsRequested > 0
	i.mu.Unlock()
	if have {
		return nil
	}
	return i.requestID(ctx)
}

// nextIdentity returns an identity that was never used: the next epoch, or with newID one with
// another producer id.
func (i *identities) nextIdentity(ctx context.Context, newID bool) (identity, error) {
	i.mu.Lock()
	exhausted := i.idsRequested == 0 || !i.lastUnused && (newID || i.last.epoch == math.MaxInt16)
	i.mu.Unlock()
	if exhausted {
		if err := i.requestID(ctx); err != nil {
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

// requestID requests a producer id from any broker: without a transactional id there is no
// coordinator.
func (i *identities) requestID(ctx context.Context) error {
	var res *sarama.InitProducerIDResponse
	err := i.control.do(ctx, func(l *link) (err error) {
		res, err = l.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
		return err
	})
	if err != nil {
		return err
	}
	if res.Err != sarama.ErrNoError {
		return fmt.Errorf("take a producer id: %w", errorOf(res.Err))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = identity{id: res.ProducerID, epoch: res.ProducerEpoch}
	i.lastUnused = true
	i.idsRequested++
	return nil
}

// loseIdentity stops all sending until there is a new identity: some broker does not know the
// producer's last sequence. Sequences of different identities must not be in flight together, or
// a late answer would be about the wrong ones. p.mu is held.
func (p *producer) loseIdentity(part *partition, sh *sentBatch) {
	if sh.block != nil && sh.block.Err == sarama.ErrInvalidProducerEpoch {
		p.newIDRequired = true
	}
	if p.identityLost {
		return
	}
	p.identityLost = true
	p.client.counters.renewals.Add(1)
	name, id, err := part.topic.name, part.id, sh.err
	p.logLater(func(ctx context.Context) {
		p.log.WarnContext(ctx, "producer numbers its batches anew, unacknowledged records may come twice",
			slog.String("topic", name), slog.Int("partition", int(id)), slog.Any("err", err))
	})
}

// renewIdentity gets the next identity and lets the senders send again. Nothing is in flight.
func (p *producer) renewIdentity(ctx context.Context) {
	start := time.Now()
	p.mu.Lock()
	// An epoch under which no batch was accepted gives no reason to trust the next one.
	newID := p.newIDRequired || !p.identityAccepted && p.identity != identity{}
	p.mu.Unlock()
	id, err := p.client.identities.nextIdentity(ctx, newID)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			p.identityRetry.recordFailure(err, start, time.Now(), rand.Float64())
			p.client.counters.recordError(err.Error())
		}
		return
	}
	if p.identityRetry.attempts > 0 {
		signal(p.wakeMonitor)
	}
	p.identity, p.identityAccepted, p.newIDRequired, p.identityRetry = id, false, false, retryState{}
	for _, t := range p.topics {
		for _, part := range t.parts {
			part.nextSequence = 0
			for _, b := range part.queue {
				b.sequence = noSequence
			}
		}
	}
	p.identityLost = false
	p.wakeSenders()
}

// currentIdentity returns the identity to send under. It locks p.mu.
func (p *producer) currentIdentity() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}
