package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/owner"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// A stalledSink has delivered nothing since the given time.
type stalledSink struct {
	sink.Sink
	since time.Time
}

func (s *stalledSink) Stat() sink.Stat { return sink.Stat{StalledSince: s.since} }

// A streaming relay releases the slot if it has delivered nothing for a minute and no broker responds. A single
// stalled topic is not enough.
func TestSlotIsLeftToOthersWithoutABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled, store := &stalledSink{}, &positiontest.Store{}
		r := &Relay{cfg: Config{Positions: position.Place{Topic: "positions"}}}
		r.store = positiontest.Open(t, store, slog.New(slog.DiscardHandler))
		r.positions = position.New(position.Config{Store: r.store, Log: slog.New(slog.DiscardHandler)})
		r.sink.Store(new(sink.Sink(stalled)))
		check := func(want error) {
			t.Helper()
			if err := r.checkStore(t.Context()); !errors.Is(err, want) {
				t.Errorf("stalled since %s, the store is silent %t: %v", stalled.since, store.Silent, err)
			}
		}
		check(nil)
		store.Silent = true
		check(nil)
		stalled.since = time.Now()
		check(nil)
		bubble.Sleep(owner.ReleaseAfter)
		check(position.ErrNoStore)
		store.Silent = false
		check(nil)

		began := time.Now()
		retry := &retry{waits: &waitLog{log: slog.New(slog.DiscardHandler)}}
		if err := retry.backOff(t.Context(), fmt.Errorf("%w: gone", position.ErrNoStore)); err != nil || bubble.Since(began) < owner.ReleaseFor {
			t.Errorf("the slot is free for %s, %v", bubble.Since(began), err)
		}
	})
}
