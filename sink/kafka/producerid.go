package kafka

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/IBM/sarama"
)

// An identity is what brokers number our batches by, partition by partition.
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

	mu    sync.Mutex
	last  identity
	fresh bool // last has not been handed out
	taken int  // producer ids taken from the cluster
}

// acquire makes sure that the next identity is at hand. It asks the cluster for a producer
// id if there is none yet.
func (i *identities) acquire(ctx context.Context) error {
	i.mu.Lock()
	have := i.taken > 0
	i.mu.Unlock()
	if have {
		return nil
	}
	return i.request(ctx)
}

// next returns an identity that was never used. anew asks for another producer id, for when
// brokers do not take the present one.
func (i *identities) next(ctx context.Context, anew bool) (identity, error) {
	i.mu.Lock()
	exhausted := i.taken == 0 || !i.fresh && (anew || i.last.epoch == math.MaxInt16)
	i.mu.Unlock()
	if exhausted {
		if err := i.request(ctx); err != nil {
			return identity{}, err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.fresh {
		i.last.epoch++
	}
	i.fresh = false
	return i.last, nil
}

// request asks any broker for a producer id; without a transactional id there is no
// coordinator to find.
func (i *identities) request(ctx context.Context) error {
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
	i.fresh = true
	i.taken++
	return nil
}
