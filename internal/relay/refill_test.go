package relay

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The record of a refill replaces no claim. The next claim, of the same process or of another one, is higher and has
// another identity than the one under which records may still be on the wire.
func TestClaimOutlivesTheBeginOfARefill(t *testing.T) {
	for _, another := range []bool{false, true} {
		store := &scriptedStore{}
		startedWriter(t, store, server(40))
		w, tracker := startedWriter(t, store, server(50))
		deliver(tracker, 110)
		write(t, w)
		before := w.stored
		if err := w.beginRefill(t.Context(), before, server(0), &catalog.Copy{Point: 200, Snapshot: "5:5:"}); err != nil {
			t.Fatal(err)
		}
		next := w
		if another {
			next = newTestWriter(store, false)
		}
		claimed(t, next, server(200))
		if now := next.stored; now.Claim <= before.Claim || string(now.Identity) <= string(before.Identity) || now.Refill == nil {
			t.Errorf("another process %t: claim %d with identity %s after claim %d with identity %s, refill %v", another,
				now.Claim, now.Identity, before.Claim, before.Identity, now.Refill)
		}
	}
}

// Kafka may be away when the slot is lost, which is the usual reason for its loss. The relay then waits for Kafka.
func TestRefillWaitsForTheStore(t *testing.T) {
	for name, store := range map[string]*scriptedStore{
		"unreachable": {refuse: fmt.Errorf("%w: connection refused", sink.ErrUnreachable)},
		"silent":      {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Relay{cfg: Config{RefillOnLoss: true}.withDefaults(), positions: newTestWriter(store, false), log: slog.New(slog.DiscardHandler)}
				err := r.refillLost(t.Context(), replication.ErrSlotLost)
				if p := faultOf(err).patience; p != outage {
					t.Errorf("patience %d after %v", p, err)
				}
			})
		})
	}
}
