package kafka

import (
	"context"
	"encoding/json"
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

// An identity is a producer id and epoch, under which brokers count the sequences of a partition.
//
// A broker takes a higher epoch of an id as a new beginning, whoever raises it, and from then on
// refuses in that partition what is sent under a lower one: a request of a connection that was given
// up cannot enter the log behind its own repetition, nor what an older process still sends behind
// what a newer one has sent (KIP-360, and ProducerAppendInfo of the broker).
type identity struct {
	id    int64
	epoch int16
}

// epochsPerBlock is how often a producer may renew its identity before it needs another block.
const epochsPerBlock = 8

// An identityBlock is what [sink.PositionStore.NextIdentity] hands out, as JSON: so many epochs of a
// producer id, of which a producer uses one after the other.
type identityBlock struct {
	ClusterID  string `json:"cluster_id,omitempty"` // which cluster has given the id; empty: it does not say
	ID         int64  `json:"id"`
	FirstEpoch int16  `json:"first_epoch"`
}

// epochs are what is left of an identityBlock.
type epochs struct {
	next identity
	left int
}

// parseIdentity returns the epochs of an identity that NextIdentity has returned, nil for nil.
func parseIdentity(data []byte) (*epochs, error) {
	blocks, err := parseBlocks(data)
	if len(blocks) == 0 {
		return nil, err
	}
	b := blocks[0]
	return &epochs{next: identity{b.ID, b.FirstEpoch}, left: epochsPerBlock}, nil
}

// parseBlocks returns what NextIdentity has returned, without the nils.
func parseBlocks(given ...[]byte) ([]identityBlock, error) {
	var blocks []identityBlock
	for _, data := range given {
		if data == nil {
			continue
		}
		b := identityBlock{ID: -1} // a missing id must not become 0, which is somebody else's
		err := json.Unmarshal(data, &b)
		if err == nil && (b.ID < 0 || b.FirstEpoch < 0 || b.FirstEpoch > math.MaxInt16-epochsPerBlock) {
			err = fmt.Errorf("not a producer id with epochs: id %d, first_epoch %d", b.ID, b.FirstEpoch)
		}
		if err != nil {
			return nil, fmt.Errorf("identity of a producer: %w", err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// take returns the next identity, or errIdentityUsed.
func (e *epochs) take() (identity, error) {
	if e.left == 0 {
		return identity{}, errIdentityUsed
	}
	id := e.next
	e.next.epoch++
	e.left--
	return id, nil
}

// nextBlock returns the block after those given, of a cluster; ok is false if it takes another
// producer id.
func nextBlock(clusterID string, given []identityBlock) (next identityBlock, ok bool) {
	if len(given) == 0 {
		return next, false
	}
	newest, highest := given[len(given)-1], int16(0)
	for _, b := range given {
		if b.ID == newest.ID {
			highest = max(highest, b.FirstEpoch)
		}
	}
	if newest.ClusterID != clusterID || highest > math.MaxInt16-2*epochsPerBlock {
		return next, false
	}
	return identityBlock{ClusterID: clusterID, ID: newest.ID, FirstEpoch: highest + epochsPerBlock}, true
}

// identities hands out identities to producers that have been given none, never the same twice: the
// same producer id with the next epoch, where possible.
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
	return i.replaceID(ctx)
}

// nextIdentity returns an identity that was never used: the next epoch, or with newID one with
// another producer id.
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

// replaceID takes another producer id.
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

// loseIdentity stops all sending until there is a new identity: some broker does not know the
// producer's last sequence. Sequences of different identities must not be in flight together, or
// a late answer would be about the wrong ones. p.mu is held.
func (p *producer) loseIdentity(part *partition, sh *sentBatch) {
	if sh.block != nil && sh.block.Err == sarama.ErrInvalidProducerEpoch {
		if p.epochs != nil {
			p.stopSending(fmt.Errorf("%w: topic %s, partition %d: %w", sink.ErrSuperseded, part.topic.name, part.id, sh.err))
			return
		}
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

// errIdentityUsed is [sink.ErrIdentityUsed] in Kafka's words.
var errIdentityUsed = fmt.Errorf("%w: %w", sink.ErrIdentityUsed, errors.New("brokers have repeatedly lost the state of this producer"))

// renewIdentity gets the next identity and lets the senders send again. Nothing is in flight.
func (p *producer) renewIdentity(ctx context.Context) {
	start := time.Now()
	id, err := p.nextIdentity(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		switch {
		case errors.Is(err, errIdentityUsed):
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

// nextIdentity returns an identity that this producer has not had.
func (p *producer) nextIdentity(ctx context.Context) (identity, error) {
	if p.epochs != nil {
		return p.epochs.take()
	}
	p.mu.Lock()
	// An epoch under which no batch was accepted gives no reason to trust the next one.
	newID := p.newIDRequired || !p.identityAccepted && p.identity != identity{}
	p.mu.Unlock()
	return p.client.identities.nextIdentity(ctx, newID)
}

// currentIdentity returns the identity to send under. It locks p.mu.
func (p *producer) currentIdentity() identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}
