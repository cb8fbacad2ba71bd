package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// arrival is a record for the panel.
type arrival struct {
	topic, key, kind string
	took             time.Duration
}

// A consumer reads the topics from the start and adds every record to the ledger.
type consumer struct {
	client *kgo.Client
	ledger *ledger

	mu     sync.Mutex
	newest []arrival // first appearances, oldest first
	shown  int       // how many of those are kept
}

// run consumes until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	for {
		fetches := c.client.PollFetches(ctx)
		now := time.Now()
		if errors.Is(fetches.Err0(), context.Canceled) {
			return nil
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("consume %s: %w", e.Topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) { c.take(r, now) })
	}
}

func (c *consumer) take(r *kgo.Record, now time.Time) {
	got := row{topic: r.Topic, key: string(r.Key)}
	for _, h := range r.Headers {
		switch h.Key {
		case "id":
			got.id, _ = uuid.ParseBytes(h.Value) // an invalid id matches no committed row
		case "eventType":
			got.kind = string(h.Value)
		}
	}
	took, ok := c.ledger.receive(got, delivery.Coordinates{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}, now)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.newest) >= c.shown {
		c.newest = append(c.newest[:0], c.newest[1:]...)
	}
	c.newest = append(c.newest, arrival{got.topic, got.key, got.kind, took})
}

func (c *consumer) arrivals() []arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]arrival(nil), c.newest...)
}
