package position_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// After a promotion, an ownership starts at the fork if the recorded position is after it, otherwise at the recorded
// position. It confirms nothing until it has written the first position record of a new generation and of the new
// timeline.
func TestPositionWriterFollowsAPromotion(t *testing.T) {
	for name, tc := range map[string]struct{ fork, confirmed, start pglogrepl.LSN }{
		"with all of the log":  {350, 250, 300},
		"up to the record":     {300, 300, 300},
		"without a tail":       {200, 150, 200},
		"the slot at the fork": {200, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			store := &positiontest.Store{}
			before, tracker := positiontest.Started(t, store, positiontest.Server(100))
			before.Writer.KeepSnapshot(checkpoint.Snapshot{EndLSN: 160, Text: "1:1:"})
			positiontest.Deliver(tracker, 160)
			positiontest.Write(t, before)
			before.Writer.KeepSnapshot(checkpoint.Snapshot{EndLSN: 290, Text: "2:2:"})
			positiontest.Deliver(tracker, 300)
			positiontest.Write(t, before)

			s := positiontest.Promoted(tc.fork, tc.confirmed)
			w := newTestWriter(t, store, false)
			positiontest.Begin(t, w, s)
			tracker = positiontest.Start(t, w, s)
			if got := tracker.Confirmed(); got != tc.start || w.Writer.Confirmed() != 0 {
				t.Errorf("starts at %s, confirmed to Postgres is %s", got, w.Writer.Confirmed())
			}
			if err := w.Record.CanContinue(s); err != nil {
				t.Errorf("a session that is lost before the record is written: %v", err)
			}
			positiontest.Write(t, w)
			p := store.Position(t)
			if p.EndLSN != tc.start || p.Timeline != 2 || p.TimelineStart != tc.fork || p.Generation != 2 || w.Writer.Confirmed() != tc.start {
				t.Errorf("recorded is %+v, confirmed to Postgres is %s", p, w.Writer.Confirmed())
			}
			if n := len(p.Snapshots); tc.fork < 290 && n != 1 || tc.fork >= 290 && n != 2 || p.Snapshots[n-1].EndLSN != 160 {
				t.Errorf("snapshots %v", p.Snapshots)
			}

			positiontest.Deliver(tracker, 500) // after both position records
			positiontest.Write(t, w)
			next, _ := positiontest.Started(t, store, s)
			if p := next.Record.Stored(); p.EndLSN != 500 || p.Generation != 2 {
				t.Errorf("the next one starts at %+v", p)
			}
		})
	}
}

// If the slot is after the fork, there is a gap. There is also a gap if the server's timeline does not descend from
// that of the position record. If the operator accepts the gap, the ownership starts at the slot's own position, on
// the server's timeline.
func TestPositionWriterStopsAtAPromotionWithAGap(t *testing.T) {
	other := positiontest.Promoted(400, 250)
	other.History = checkpoint.History{1: 300}
	for name, tc := range map[string]struct {
		server checkpoint.Server
		says   string
	}{
		"behind the fork":   {positiontest.Promoted(200, 250), "left timeline 1 at 0/C8"},
		"behind the record": {positiontest.Promoted(350, 310), "advanced or re-created by somebody else"},
		"an older one":      {positiontest.Server(100), "older copy"},
		"another branch":    {other, "the timelines have diverged"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &positiontest.Store{}
			before := positiontest.Server(100)
			if name == "an older one" || name == "another branch" {
				before = positiontest.Promoted(50, 100)
			}
			w, tracker := positiontest.Started(t, store, before)
			positiontest.Deliver(tracker, 300)
			positiontest.Write(t, w)

			w = newTestWriter(t, store, false)
			positiontest.Begin(t, w, tc.server)
			_, err := w.Starter.ChooseStart(t.Context(), tc.server)
			if gap, ok := errors.AsType[*checkpoint.GapError](err); !ok || !strings.Contains(gap.Reason.Error(), tc.says) {
				t.Errorf("chooseStart: %v", err)
			}

			w = newTestWriter(t, store, true)
			positiontest.Begin(t, w, tc.server)
			if start := positiontest.Start(t, w, tc.server).Confirmed(); start != 0 {
				t.Errorf("with the gap accepted it starts at %s", start)
			}
			positiontest.Write(t, w)
			p := store.Position(t)
			if p.EndLSN != tc.server.Confirmed || p.Timeline != tc.server.Timeline || p.TimelineStart != tc.server.History[1] {
				t.Errorf("recorded is %+v", p)
			}
			positiontest.Started(t, store, tc.server) // no gap any more
		})
	}
}

// A server may not tell where its timeline starts. The next position record contains it.
func TestPositionWriterAddsTheTimelineStart(t *testing.T) {
	s := positiontest.Promoted(50, 100)
	old := []byte(`{"version":1,"system_id":"1","timeline":2,"slot":"s","end_lsn":"0/190","generation":1}`)
	store := &positiontest.Store{}
	if err := store.Post(t.Context(), sink.PositionKey, old); err != nil {
		t.Fatal(err)
	}
	w, tracker := positiontest.Started(t, store, s)
	positiontest.Deliver(tracker, 500)
	positiontest.Write(t, w)
	if p := store.Position(t); p.TimelineStart != 50 || p.Generation != 1 {
		t.Errorf("recorded is %+v", p)
	}
}
