package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
)

// The position record is at 1/100 on timeline 2, which starts at 0/5000.
func TestContinueDetectsGaps(t *testing.T) {
	p := recorded()
	found := Server{
		SystemID: p.SystemID, Timeline: 2, History: History{1: 0x5000}, Slot: p.Slot, Confirmed: p.EndLSN, WALEnd: p.EndLSN + 1000,
	}
	// promoted changes the server to timeline 3, which forks from timeline 2 at fork.
	promoted := func(fork, confirmed pglogrepl.LSN) func(s *Server) {
		return func(s *Server) {
			s.Timeline, s.History, s.Confirmed, s.WALEnd = 3, History{1: 0x5000, 2: fork}, confirmed, max(fork, confirmed)+200
		}
	}
	for _, tc := range []struct {
		name   string
		change func(s *Server)
		want   pglogrepl.LSN
		gap    string // empty: no gap
	}{
		{"the slot is at the record", func(*Server) {}, p.EndLSN, ""},
		{"the slot went back", func(s *Server) { s.Confirmed -= 100 }, p.EndLSN, ""},
		{"the log ends at the record", func(s *Server) { s.WALEnd = p.EndLSN }, p.EndLSN, ""},
		{"the slot is ahead", func(s *Server) { s.Confirmed++ }, 0, "advanced or re-created"},
		{"the log ends before the record", func(s *Server) { s.WALEnd, s.Confirmed = p.EndLSN-1, p.EndLSN-1 }, 0, "ends at 1/FF, before the record: an older copy"},
		{"another system", func(s *Server) { s.SystemID = "1" }, 0, "system 1"},
		{"another slot", func(s *Server) { s.Slot = "other" }, 0, `this is slot "other"`},
		{"an older timeline", func(s *Server) { s.Timeline, s.History = 1, nil }, 0, "server is on timeline 1, the record is of timeline 2: an older copy"},

		{"promoted with all of the log", promoted(p.EndLSN, p.EndLSN), p.EndLSN, ""},
		{"promoted with more, the slot was synchronised", promoted(p.EndLSN+50, p.EndLSN-100), p.EndLSN, ""},
		{"promoted with more, the slot was made behind the fork", promoted(p.EndLSN+50, p.EndLSN+100), 0, "advanced or re-created by somebody"},
		{"promoted with more, the slot was made at once", promoted(p.EndLSN+50, p.EndLSN+50), 0, "advanced or re-created by somebody"},
		{"promoted with more, the slot is one byte ahead", promoted(p.EndLSN+50, p.EndLSN+1), 0, "advanced or re-created by somebody"},
		{"promoted without a tail, the slot was synchronised", promoted(p.EndLSN-50, p.EndLSN-100), p.EndLSN - 50, ""},
		{"promoted without a tail, the slot is at the fork", promoted(p.EndLSN-50, p.EndLSN-50), p.EndLSN - 50, ""},
		{"promoted without a tail, the slot is a byte behind the fork", promoted(p.EndLSN-50, p.EndLSN-49), 0, "left timeline 2 at 1/CE"},
		{"promoted without a tail, the slot is at the record", promoted(p.EndLSN-50, p.EndLSN), 0, "left timeline 2 at 1/CE, before the record"},
		{"promoted without a tail, the slot is ahead", promoted(p.EndLSN-50, p.EndLSN+1), 0, "the server left timeline 2 at 1/CE, before the record"},
		{"promoted twice", func(s *Server) {
			promoted(p.EndLSN-50, p.EndLSN-60)(s)
			s.Timeline, s.History[3] = 4, p.EndLSN+10
		}, p.EndLSN - 50, ""},

		{"another timeline 2", func(s *Server) { s.History = History{1: 0x4000} }, 0, "timeline 2 starts at 0/4000 on the server, and at 0/5000 in the record: the timelines have diverged"},
		{"promoted from another timeline 2", func(s *Server) {
			promoted(p.EndLSN, p.EndLSN)(s)
			s.History[1] = 0x4000
		}, 0, "the timelines have diverged"},
		{"promoted from timeline 1", func(s *Server) {
			promoted(p.EndLSN, p.EndLSN)(s)
			delete(s.History, 2)
		}, 0, "and the server's timeline 3 does not descend from it: the timelines have diverged"},
		{"the same timeline, its history is lost", func(s *Server) { s.History = nil }, p.EndLSN, ""},
		{"promoted, its history is lost", func(s *Server) { s.Timeline, s.History = 3, nil }, 0, "lost the history of its timeline 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := found
			tc.change(&s)
			start, err := p.Continue(s)
			if start != tc.want {
				t.Errorf("starts at %s, want %s", start, tc.want)
			}
			gap, isGap := errors.AsType[*GapError](err)
			switch {
			case tc.gap == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case tc.gap != "" && (!isGap || !strings.Contains(gap.Reason.Error(), tc.gap)):
				t.Errorf("error %v, want a gap with %q", err, tc.gap)
			case tc.gap != "" && !strings.Contains(err.Error(), "recorded at 2026-03-01T12:00:00Z is 1/100"):
				t.Errorf("the error does not name the record: %v", err)
			}
		})
	}
}

// The first timeline has no start, and earlier versions did not record the start.
func TestContinueOfARecordWithoutTimelineStart(t *testing.T) {
	of1 := Position{SystemID: "1", Timeline: 1, Slot: "s", EndLSN: 0x200}
	of2 := Position{SystemID: "1", Timeline: 2, Slot: "s", EndLSN: 0x200}
	for _, p := range []Position{of1, of2} {
		s := Server{SystemID: "1", Timeline: 3, History: History{1: 0x100, 2: 0x300}, Slot: "s", Confirmed: 0x80, WALEnd: 0x400}
		want := min(p.EndLSN, s.History[p.Timeline])
		if start, err := p.Continue(s); start != want || err != nil {
			t.Errorf("of timeline %d: starts at %s, %v", p.Timeline, start, err)
		}
	}
}

func TestLostTail(t *testing.T) {
	p := recorded()
	for name, tc := range map[string]struct {
		timeline  int32
		history   History
		confirmed pglogrepl.LSN
		want      bool
	}{
		"not promoted":                  {2, History{1: 0x5000}, 0, false},
		"with all":                      {3, History{1: 0x5000, 2: p.EndLSN}, 0, false},
		"without a byte":                {3, History{1: 0x5000, 2: p.EndLSN - 1}, 0, true},
		"the slot is behind the record": {3, History{1: 0x5000, 2: p.EndLSN - 1}, p.EndLSN + 10, true},
		"a diverged timeline":           {3, History{1: 0x4000, 2: p.EndLSN - 1}, 0, false},
	} {
		s := Server{SystemID: p.SystemID, Timeline: tc.timeline, History: tc.history, Slot: p.Slot, Confirmed: tc.confirmed, WALEnd: p.EndLSN + 10}
		if fork, lost := p.LostTail(s); lost != tc.want || lost && fork != tc.history[2] {
			t.Errorf("%s: %s, %t", name, fork, lost)
		}
	}
}

// A record continues after its last transaction unless somebody has moved the slot, the server was promoted without that transaction, or
// the stream is that of another publication: then nobody knows which transaction is the last one.
func TestMovedKeepsTheLastTransaction(t *testing.T) {
	p := recorded() // at 1/100, after the transaction at 1/C0
	same := Server{SystemID: p.SystemID, Timeline: 2, History: History{1: 0x5000}, Slot: p.Slot, WALEnd: p.EndLSN, Reading: "orders"}
	promoted := func(fork pglogrepl.LSN) Server {
		s := same
		s.Timeline, s.History = 3, History{1: 0x5000, 2: fork}
		return s
	}
	other := same
	other.Reading = "payments"
	for name, tc := range map[string]struct {
		server Server
		end    pglogrepl.LSN
		keeps  bool
	}{
		"at the record":                     {same, p.EndLSN, true},
		"where somebody has moved the slot": {same, p.EndLSN + 8, false},
		"at an earlier position":            {same, p.EndLSN - 8, false},
		"of another publication":            {other, p.EndLSN, false},
		"at a fork after the transaction":   {promoted(0x1_0000_00D0), 0x1_0000_00D0, true},
		"at a fork before the transaction":  {promoted(0x1_0000_00B0), 0x1_0000_00B0, false},
	} {
		want := Landmark{}
		if tc.keeps {
			want = p.Last
		}
		if moved := p.Moved(tc.server, tc.end); moved.Last != want || moved.Reading != tc.server.Reading {
			t.Errorf("%s: the last transaction of %q is %s, want %s", name, moved.Reading, moved.Last, want)
		}
	}
}

// Snapshots from after the fork are invalid: on the new timeline, their transaction ids mean other
// transactions.
func TestMovedKeepsTheSnapshotsThatCount(t *testing.T) {
	p := recorded() // with snapshots at 1/80 and 0/80
	server := Server{SystemID: p.SystemID, Timeline: 3, History: History{1: 0x5000, 2: 0x1_0000_007F}, Slot: p.Slot}
	moved := p.Moved(server, 0x1_0000_0090)
	want := p
	want.Last, want.Reading = Landmark{}, "" // it is from after the fork
	want.Timeline, want.TimelineStart, want.EndLSN, want.Snapshots = 3, 0x1_0000_007F, 0x1_0000_0090, p.Snapshots[1:]
	if diff := cmp.Diff(want, moved); diff != "" {
		t.Errorf("promoted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(recorded(), p); diff != "" {
		t.Errorf("p was changed:\n%s", diff)
	}
	server.History[2]++
	if moved := p.Moved(server, 0x1_0000_0090); len(moved.Snapshots) != 2 {
		t.Errorf("of a snapshot at the fork: %v", moved.Snapshots)
	}
	server.Timeline, server.History, server.WALEnd = 2, History{1: 0x5000}, p.EndLSN
	if moved := p.Moved(server, 0x1_0000_0090); len(moved.Snapshots) != 2 || moved.TimelineStart != 0x5000 {
		t.Errorf("on the same timeline: %+v", moved)
	}
	server.History = History{1: 0x4000}
	if moved := p.Moved(server, 0x1_0000_0090); len(moved.Snapshots) != 0 || moved.TimelineStart != 0x4000 {
		t.Errorf("on a diverged timeline: %+v", moved)
	}
	server.SystemID = "1"
	if moved := p.Moved(server, 0x1_0000_0090); len(moved.Snapshots) != 0 {
		t.Errorf("of another system: %v", moved.Snapshots)
	}
}

// The reason of a gap says whether the record is of this slot: what to do about one of another slot differs.
func TestGapOfAnotherSlot(t *testing.T) {
	p := recorded()
	for name, tc := range map[string]struct {
		change func(s *Server)
		want   error // nil: the record is of this slot
	}{
		"advanced":             {func(s *Server) { s.Confirmed++ }, nil},
		"another system":       {func(s *Server) { s.SystemID = "1" }, ErrOtherSystem},
		"another slot":         {func(s *Server) { s.Slot = "other" }, ErrOtherSlot},
		"an earlier timeline":  {func(s *Server) { s.Timeline, s.History = 1, nil }, ErrEarlierTimeline},
		"the WAL ends earlier": {func(s *Server) { s.WALEnd, s.Confirmed = p.EndLSN-1, p.EndLSN-1 }, ErrOtherWAL},
		"the history is lost":  {func(s *Server) { s.Timeline, s.History = 3, nil }, ErrOtherWAL},
		"another branch":       {func(s *Server) { s.Timeline, s.History = 3, History{1: 0x4000} }, ErrOtherWAL},
		"another timeline":     {func(s *Server) { s.History = History{1: 0x4000} }, ErrOtherWAL},
	} {
		s := Server{SystemID: p.SystemID, Timeline: 2, History: History{1: 0x5000}, Slot: p.Slot, Confirmed: p.EndLSN, WALEnd: p.EndLSN + 1000}
		tc.change(&s)
		_, err := p.Continue(s)
		gap, ok := errors.AsType[*GapError](err)
		if !ok || gap.SameSlot() != (tc.want == nil) || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// A slot on a standby server of the one of the record is not the slot of the record. A promoted server has another timeline.
func TestOfPrimary(t *testing.T) {
	record := Position{SystemID: "7001", Slot: "s", Timeline: 2, EndLSN: 0x20}
	standby := Server{SystemID: "7001", Slot: "s", Timeline: 2, Standby: true}
	for name, tc := range map[string]struct {
		change func(p *Position, s *Server)
		want   bool
	}{
		"of the primary":       {func(*Position, *Server) {}, true},
		"the same server":      {func(_ *Position, s *Server) { s.Standby = false }, false},
		"promoted":             {func(_ *Position, s *Server) { s.Timeline++ }, false},
		"of the standby":       {func(p *Position, s *Server) { *p = p.Moved(*s, 0x20) }, false},
		"of another system":    {func(p *Position, _ *Server) { p.SystemID = "1" }, false},
		"of the standby, then": {func(p *Position, s *Server) { *p = p.Moved(*s, 0x20); s.Standby = false }, false},
	} {
		p, s := record, standby
		tc.change(&p, &s)
		if got := p.OfPrimary(s); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A record of another system says so even if the server has no slot. On its own system, a missing slot is no matter of the record.
func TestElsewhere(t *testing.T) {
	p := Position{SystemID: "7001", Slot: "s", Timeline: 1, EndLSN: 0x20}
	err := p.Elsewhere(Server{SystemID: "7002", Slot: "s"})
	if !errors.Is(err, ErrOtherSystem) || !strings.Contains(err.Error(), `slot "s" does not exist, the position recorded at `) {
		t.Errorf("another system: %v", err)
	}
	if err := p.Elsewhere(Server{SystemID: "7001", Slot: "s"}); err != nil {
		t.Errorf("the same system: %v", err)
	}
}
