package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// promoted returns a server like that of the function server, but on timeline 2, which left timeline 1 at fork.
func promoted(fork, confirmed pglogrepl.LSN) checkpoint.Server {
	s := server(confirmed)
	s.Timeline, s.History = 2, checkpoint.History{1: fork}
	return s
}

// After a promotion, a tenure starts at the fork if the recorded position is after it, otherwise at the recorded
// position. It confirms nothing until it has written the first position record of a new term and of the new
// timeline.
func TestPositionWriterFollowsAPromotion(t *testing.T) {
	for name, tc := range map[string]struct{ fork, confirmed, start pglogrepl.LSN }{
		"with all of the log":  {350, 250, 300},
		"up to the record":     {300, 300, 300},
		"without a tail":       {200, 150, 200},
		"the slot at the fork": {200, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			store := &scriptedStore{}
			before, tracker := startedWriter(t, store, server(100))
			before.keepSnapshot(checkpoint.Snapshot{EndLSN: 160, Text: "1:1:"})
			deliver(tracker, 160)
			write(t, before)
			before.keepSnapshot(checkpoint.Snapshot{EndLSN: 290, Text: "2:2:"})
			deliver(tracker, 300)
			write(t, before)

			s := promoted(tc.fork, tc.confirmed)
			w := newTestWriter(store, false)
			begun(t, w, s)
			tracker = startTracker(t, w, s)
			if got := tracker.Confirmed(); got != tc.start || w.confirmedPosition() != 0 {
				t.Errorf("starts at %s, confirmed to Postgres is %s", got, w.confirmedPosition())
			}
			if err := w.canContinue(s); err != nil {
				t.Errorf("a session that is lost before the record is written: %v", err)
			}
			write(t, w)
			p := store.position(t)
			if p.EndLSN != tc.start || p.Timeline != 2 || p.TimelineStart != tc.fork || p.Term != 2 || w.confirmedPosition() != tc.start {
				t.Errorf("recorded is %+v, confirmed to Postgres is %s", p, w.confirmedPosition())
			}
			if n := len(p.Snapshots); tc.fork < 290 && n != 1 || tc.fork >= 290 && n != 2 || p.Snapshots[n-1].EndLSN != 160 {
				t.Errorf("snapshots %v", p.Snapshots)
			}

			deliver(tracker, 500) // after both position records
			write(t, w)
			next, _ := startedWriter(t, store, s)
			if p := next.stored; p.EndLSN != 500 || p.Term != 2 {
				t.Errorf("the next one starts at %+v", p)
			}
		})
	}
}

// If the slot is after the fork, there is a gap. There is also a gap if the server's timeline does not descend from
// that of the position record. If the operator accepts the gap, the tenure starts at the slot's own position, on
// the server's timeline.
func TestPositionWriterStopsAtAPromotionWithAGap(t *testing.T) {
	other := promoted(400, 250)
	other.History = checkpoint.History{1: 300}
	for name, tc := range map[string]struct {
		server checkpoint.Server
		says   string
	}{
		"behind the fork":   {promoted(200, 250), "left timeline 1 at 0/C8"},
		"behind the record": {promoted(350, 310), "advanced or re-created by somebody else"},
		"an older one":      {server(100), "older copy"},
		"another branch":    {other, "the timelines have diverged"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &scriptedStore{}
			before := server(100)
			if name == "an older one" || name == "another branch" {
				before = promoted(50, 100)
			}
			w, tracker := startedWriter(t, store, before)
			deliver(tracker, 300)
			write(t, w)

			w = newTestWriter(store, false)
			begun(t, w, tc.server)
			_, err := w.chooseStart(t.Context(), tc.server)
			if gap, ok := errors.AsType[*checkpoint.GapError](err); !ok || !strings.Contains(gap.Reason, tc.says) || ExitCode(err) != ExitContinuity {
				t.Errorf("chooseStart: %v", err)
			}

			w = newTestWriter(store, true)
			begun(t, w, tc.server)
			if start := startTracker(t, w, tc.server).Confirmed(); start != 0 {
				t.Errorf("with the gap accepted it starts at %s", start)
			}
			write(t, w)
			p := store.position(t)
			if p.EndLSN != tc.server.Confirmed || p.Timeline != tc.server.Timeline || p.TimelineStart != tc.server.History[1] {
				t.Errorf("recorded is %+v", p)
			}
			startedWriter(t, store, tc.server) // no gap any more
		})
	}
}

// A server may not tell where its timeline starts. The next position record contains it.
func TestPositionWriterAddsTheTimelineStart(t *testing.T) {
	s := promoted(50, 100)
	old := []byte(`{"version":1,"system_id":"1","timeline":2,"slot":"s","end_lsn":"0/190","term":1}`)
	store := &scriptedStore{}
	if err := store.Post(t.Context(), sink.PositionKey, old); err != nil {
		t.Fatal(err)
	}
	w, tracker := startedWriter(t, store, s)
	deliver(tracker, 500)
	write(t, w)
	if p := store.position(t); p.TimelineStart != 50 || p.Term != 1 {
		t.Errorf("recorded is %+v", p)
	}
}

// Rows that this process has read on the old timeline also count as delivered, even if the position record lags.
func TestWarnLostTail(t *testing.T) {
	record := &checkpoint.Position{SystemID: "1", Timeline: 1, Slot: "s", EndLSN: 300, WrittenAt: time.Unix(0, 0)}
	of1 := slotIdentity{system: replication.System{ID: "1", Timeline: 1}, slot: "s"}
	for name, tc := range map[string]struct {
		record *checkpoint.Position
		read   pglogrepl.LSN // by the tenure; 0: no tenure
		server checkpoint.Server
		want   string // empty: no warning
	}{
		"no record":                    {nil, 0, promoted(200, 100), ""},
		"not promoted":                 {record, 0, server(100), ""},
		"nothing is lost":              {record, 0, promoted(300, 100), ""},
		"nothing that was read":        {record, 350, promoted(350, 100), ""},
		"behind the record":            {record, 0, promoted(200, 100), "timeline=1 from=0/C8 to=0/12C"},
		"behind the record, read more": {record, 350, promoted(200, 100), "timeline=1 from=0/C8 to=0/15E"},
		"behind what was read":         {record, 350, promoted(320, 100), "timeline=1 from=0/140 to=0/15E"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := &Relay{log: slog.New(slog.NewTextHandler(&log, nil))}
			if tc.read != 0 {
				r.tenure = &tenure{id: of1}
				r.flow.addCounts(&flowCounts{received: tc.read})
			}
			for range 2 { // the session may be lost before the position is recorded
				r.warnLostTail(t.Context(), tc.record, tc.server)
			}
			lines := strings.Count(log.String(), "\n")
			if !strings.Contains(log.String(), tc.want) || lines > 1 || (lines == 0) != (tc.want == "") {
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}
