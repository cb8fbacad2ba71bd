package position_test

import (
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// A relay begins a refill as the owner, unless the record was written since it was read: by another relay, or by itself, with a write
// that arrives late. Ownerships are counted on.
func TestRefillIsBegunByTheOwner(t *testing.T) {
	for _, want := range []error{nil, position.ErrReplaced, position.ErrWrittenLate} {
		store := &positiontest.Store{}
		w, tracker := positiontest.Started(t, store, positiontest.Server(50))
		positiontest.Deliver(tracker, 110)
		positiontest.Write(t, w)
		before := store.Position(t)
		switch {
		case errors.Is(want, position.ErrReplaced):
			positiontest.Started(t, store, positiontest.Server(50))
		case want != nil:
			positiontest.Deliver(tracker, 120)
			positiontest.Write(t, w)
		}
		if err := w.Recorder.OwnRecord(t.Context(), &before); !errors.Is(err, want) {
			t.Fatalf("OwnRecord returns %v, want %v", err, want)
		}
		if want != nil {
			continue
		}
		w.Recorder.SetPublication(`{"oid":7}`)
		if err := w.Recorder.BeginRefill(t.Context(), before, positiontest.Server(0), 200, "5:5:", false); err != nil {
			t.Fatal(err)
		}
		if p := store.Position(t); p.Publication != `{"oid":7}` || p.Refill.Lost.Publication != "" { // that of the new slot
			t.Errorf("recorded is %+v", p)
		}
		next := newTestWriter(t, store, false)
		positiontest.Begin(t, next, positiontest.Server(200))
		if now := next.Record.Stored(); now.Owner != before.Owner+1 || now.Refill == nil {
			t.Errorf("ownership %d after %d, refill %v", now.Owner, before.Owner, now.Refill)
		}
	}
}
