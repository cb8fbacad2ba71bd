package rig

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A Broker is a broker for [NewOver]: how the relay reaches it, and how the test reads what it has stored.
type Broker struct {
	// Topic is outbox.topic: the destination of all events. It may be a template.
	Topic string

	// Config is the end of the configuration file: the section sink, and others that the broker needs.
	Config string

	// Collect calls take for each record that the broker has stored, those of a key in their order, until the test
	// ends. It returns when it reads. CatchUp of the Collector returns when take was called for every record that was
	// stored before the call.
	Collect func(t *testing.T, take func(Received)) CatchUp
}

// A CatchUp blocks until everything that is stored at the call was collected.
type CatchUp func(ctx context.Context) error

// A Received is a record as the test has read it.
type Received struct {
	Offset     int64 // in the destination, or the number of the record in the order of arrival
	Key, Value []byte
	ID, Type   string    // of the event, from wherever the broker has them
	Timestamp  time.Time // zero: not known
}

// NewOver returns a rig whose relay sends to b.
func NewOver(t *testing.T, db *pgtest.DB, b Broker) *Rig {
	t.Helper()
	r := &Rig{
		DB: db, Topic: b.Topic, Slot: SlotPrefix + strconv.FormatInt(time.Now().UnixNano(), 36),
		Ledger: NewLedger(b.Topic, delivery.Config{}), Load: newWorkload(db.DSN),
	}
	prepare(t, db)
	r.Config = WriteConfigOver(t, db.DSN, r.Slot, b.Topic, b.Config)
	over := &collected{}
	over.catchUp = b.Collect(t, func(rec Received) {
		if over.stopped.Load() {
			return
		}
		r.Ledger.takeReceived(&rec)
		over.count.Add(1)
	})
	r.Collector = over
	return r
}

// collected is the Collector of [NewOver].
type collected struct {
	catchUp CatchUp
	count   atomic.Int64
	stopped atomic.Bool
}

func (c *collected) Count() int64                      { return c.count.Load() }
func (c *collected) CatchUp(ctx context.Context) error { return c.catchUp(ctx) }
func (c *collected) Stop()                             { c.stopped.Store(true) }
