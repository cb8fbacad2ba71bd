package relay

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
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
