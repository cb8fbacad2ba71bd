package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// loseIdentity stops all sending until there is a new identity: some broker does not know
// where we stand, and sequences of different identities must not be on the wire together, or
// a late answer would be about the wrong ones. p.mu is held.
func (p *producer) loseIdentity(part *partition, sh *shipment) {
	if sh.block != nil && sh.block.Err == sarama.ErrInvalidProducerEpoch {
		p.idRequired = true
	}
	if p.gated {
		return
	}
	p.gated = true
	p.client.counters.renewals.Add(1)
	name, id, err := part.topic.name, part.id, sh.err
	p.note(func(ctx context.Context) {
		p.log.WarnContext(ctx, "producer numbers its batches anew, unacknowledged records may come twice",
			slog.String("topic", name), slog.Int("partition", int(id)), slog.Any("err", err))
	})
}

// renew takes the next identity and opens the gate. Nothing is on the wire.
func (p *producer) renew(ctx context.Context) {
	start := time.Now()
	p.mu.Lock()
	// An epoch under which no batch was accepted gives no reason to trust the next one.
	anew := p.idRequired || !p.proven && p.identity != identity{}
	p.mu.Unlock()
	id, err := p.client.identities.next(ctx, anew)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			p.idTrouble.struck(err, start, time.Now(), luck())
			p.client.counters.failed(err.Error())
		}
		return
	}
	if p.idTrouble.attempts > 0 {
		signal(p.eased)
	}
	p.identity, p.proven, p.idRequired, p.idTrouble = id, false, false, trouble{}
	for _, t := range p.topics {
		for _, part := range t.parts {
			part.next = 0
			for _, b := range part.queue {
				b.sequence = noSequence
			}
		}
	}
	p.gated = false
	p.flush()
}

// present returns the identity to send under.
func (p *producer) present() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}

// fatalError says at which partition the producer ended.
func fatalError(kind error, part *partition, cause error) error {
	return fmt.Errorf("%w: topic %s, partition %d: %w", kind, part.topic.name, part.id, cause)
}
