package position_test

import (
	"context"
	"errors"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// A relay of a standby server records a position only if the server is still on the timeline of the session. If that cannot be
// read, the position waits.
func TestPositionsAreOfTheTimelineOfTheSession(t *testing.T) {
	store := &positiontest.Store{}
	w, tracker := positiontest.Started(t, store, positiontest.Server(100))
	timeline, lost := int32(1), error(nil)
	w.Timeline.ReadTimeline(1, func(context.Context) (int32, error) { return timeline, lost })
	positiontest.Write(t, w)

	positiontest.Deliver(tracker, 200)
	lost = errors.New("connection refused")
	if wrote, err := w.Writer.Write(t.Context()); wrote || !errors.Is(err, position.ErrTimelineUnknown) {
		t.Errorf("timeline unknown: %t, %v", wrote, err)
	}
	lost = nil
	positiontest.Write(t, w)
	if at := store.Position(t); at.EndLSN != 200 || at.Timeline != 1 {
		t.Errorf("recorded is %s on timeline %d", at.EndLSN, at.Timeline)
	}
	positiontest.Deliver(tracker, 300)
	timeline = 2
	if wrote, err := w.Writer.Write(t.Context()); wrote || !errors.Is(err, position.ErrPromoted) {
		t.Errorf("promoted: %t, %v", wrote, err)
	}
	if at := store.Position(t); at.EndLSN != 200 || w.Writer.Confirmed() != 200 {
		t.Errorf("recorded is %s, confirmed %s", at.EndLSN, w.Writer.Confirmed())
	}
}
