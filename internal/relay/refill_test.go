package relay

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A relay begins a refill as the owner, unless another relay has written the record since it was read. Tenures are counted on.
func TestRefillIsBegunByTheOwner(t *testing.T) {
	for _, another := range []bool{false, true} {
		store := &scriptedStore{}
		w, tracker := startedWriter(t, store, server(50))
		deliver(tracker, 110)
		write(t, w)
		before := store.position(t)
		if another {
			startedWriter(t, store, server(50))
		}
		if err := w.ownRecord(t.Context(), &before); errors.Is(err, sink.ErrSuperseded) != another || !another && err != nil {
			t.Fatalf("ownRecord returns %v", err)
		}
		if another {
			continue
		}
		if err := w.beginRefill(t.Context(), before, server(0), &catalog.Copy{Point: 200, Snapshot: "5:5:"}); err != nil {
			t.Fatal(err)
		}
		next := newTestWriter(store, false)
		begun(t, next, server(200))
		if now := next.stored; now.Tenure != before.Tenure+1 || now.Refill == nil {
			t.Errorf("tenure %d after %d, refill %v", now.Tenure, before.Tenure, now.Refill)
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
				_, err := newTestWriter(store, false).readRecord(t.Context())
				if p := faultOf(err).patience; p != outage {
					t.Errorf("patience %d after %v", p, err)
				}
			})
		})
	}
}
