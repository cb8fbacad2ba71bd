package relay

import (
	"context"
	"errors"
	"testing"
)

// A relay of a standby server records a position only if the server is still on the timeline of the session. If that cannot be
// read, the position waits.
func TestPositionsAreOfTheTimelineOfTheSession(t *testing.T) {
	store := &scriptedStore{}
	w, tracker := startedWriter(t, store, server(100))
	timeline, lost := int32(1), error(nil)
	w.timeline.timeline, w.timeline.read = 1, func(context.Context) (int32, error) { return timeline, lost }
	write(t, w)

	deliver(tracker, 200)
	lost = errors.New("connection refused")
	if wrote, err := w.writePosition(t.Context()); wrote || !errors.Is(err, errTimelineUnknown) {
		t.Errorf("timeline unknown: %t, %v", wrote, err)
	}
	lost = nil
	write(t, w)
	if at := store.position(t); at.EndLSN != 200 || at.Timeline != 1 {
		t.Errorf("recorded is %s on timeline %d", at.EndLSN, at.Timeline)
	}
	deliver(tracker, 300)
	timeline = 2
	if wrote, err := w.writePosition(t.Context()); wrote || !errors.Is(err, errPromoted) || faultOf(err).patience != outage {
		t.Errorf("promoted: %t, %v", wrote, err)
	}
	if at := store.position(t); at.EndLSN != 200 || w.confirmedPosition() != 200 {
		t.Errorf("recorded is %s, confirmed %s", at.EndLSN, w.confirmedPosition())
	}
}
