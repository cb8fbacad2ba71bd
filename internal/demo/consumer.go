package demo

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// Headers of a record.
const (
	idHeader   = "id"
	typeHeader = "eventType"
)

// arrival is a record for the panel.
type arrival struct {
	destination, key, kind string
	took                   time.Duration
}

// A consumer reads the destinations from the start and adds every record to the ledger.
type consumer struct {
	broker *broker
	ledger *ledger

	mu     sync.Mutex
	newest []arrival // first appearances, oldest first
	shown  int       // how many of those are kept
}

// run consumes until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	if err := c.broker.consume(ctx, c.take); ctx.Err() == nil {
		return err
	}
	return nil
}

func (c *consumer) take(m message) {
	id, _ := uuid.Parse(m.id) // an invalid id matches no committed row
	got := row{id: id, topic: m.destination, key: m.key, kind: m.kind}
	took, ok := c.ledger.receive(got, delivery.Coordinates{Topic: m.destination, Partition: m.partition, Offset: m.offset}, time.Now())
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.newest) >= c.shown {
		c.newest = append(c.newest[:0], c.newest[1:]...)
	}
	c.newest = append(c.newest, arrival{m.destination, m.key, m.kind, took})
}

func (c *consumer) arrivals() []arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]arrival(nil), c.newest...)
}
