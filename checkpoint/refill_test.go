package checkpoint

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newSlotServer returns the server of the function recorded, with a new slot.
func newSlotServer() Server {
	return Server{SystemID: recorded().SystemID, Timeline: 2, Slot: "outbox_cdc", WALEnd: 0x2_0000_0000, History: History{1: 0x5000}}
}

// A position record stores a refill. When the refill ends, the record has a snapshot for the next one.
func TestRefillRoundTripsAsJSON(t *testing.T) {
	begun := recorded().BeginRefill(newSlotServer(), 0x1_0000_0500, "800:803:801", false)
	data, err := json.Marshal(begun)
	if err != nil {
		t.Fatal(err)
	}
	var back Position
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(begun, back); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	if back.Generation != recorded().Generation+1 || back.EndLSN != 0 || back.Owner != recorded().Owner || back.Refill.Lost.EndLSN != recorded().EndLSN {
		t.Errorf("%+v", back)
	}
	for witness, text := range map[Witness]string{{}: "800:803:801", {802, 1}: "800:803:801", {790, 1}: "791:791:"} {
		ended := back.EndRefill(witness)
		if want := []Snapshot{{EndLSN: 0x1_0000_0500, Text: text, CommitTime: recorded().Snapshots[0].CommitTime, Witness: witness}}; ended.Refill != nil || !cmp.Equal(ended.Snapshots[:1], want) {
			t.Errorf("after the refill %+v", ended)
		}
	}
}

// After a refill, the record still has a snapshot from before the loss of the slot. It decides if the server is promoted without
// the end of its WAL.
func TestRefillKeepsEarlierSnapshots(t *testing.T) {
	const start = 0x1_0000_0500
	s := newSlotServer()
	ended := recorded().BeginRefill(s, start, "800:803:801", false).EndRefill(Witness{})
	ended.EndLSN = start
	s.Timeline, s.History = ended.Timeline+1, History{ended.Timeline: start - 1}
	before := recorded().Snapshots[0]
	if before.Witness == (Witness{}) || recorded().BeginRefill(newSlotServer(), start, "800:803:801", false).Witness() != before.Witness {
		t.Error("the refill has forgotten the last delivered row")
	}
	if recorded().BeginRefill(newSlotServer(), start, "800:803:801", true).Witness() != (Witness{}) {
		t.Error("the operator has said that the row is missing")
	}
	if got, reason := ended.Undelivered(s); got != before || reason != "" {
		t.Errorf("%+v, %s, want %+v", got, reason, before)
	}
	begun := recorded().BeginRefill(newSlotServer(), start, "800:803:801", false)
	begun.Timeline++ // the server was promoted during the refill
	if ended := begun.EndRefill(Witness{}); len(ended.Snapshots) != 1 || begun.Witness() != (Witness{}) {
		t.Errorf("on another timeline: %+v", ended.Snapshots)
	}
}

// When a refill starts over, it still resends everything that was missing when it first started.
func TestRefillStartsOver(t *testing.T) {
	again := recorded().BeginRefill(newSlotServer(), 0x1_0000_0500, "800:803:801", false).BeginRefill(newSlotServer(), 0x1_0000_0900, "not a snapshot", false)
	if r := again.Refill; r.Lost.EndLSN != recorded().EndLSN || r.Start != 0x1_0000_0900 || r.Until != "" || again.Generation != recorded().Generation+2 {
		t.Errorf("%+v", again)
	}
	if ended := again.EndRefill(Witness{}); len(ended.Snapshots) > 0 {
		t.Errorf("after the refill %+v", ended)
	}
}

// When the slot is lost again during a refill, the next one continues after the acknowledged rows: it sends the rows of the
// first one first. It starts over if it cannot know that these are the same rows.
func TestRefillContinuesAfterAnotherLoss(t *testing.T) {
	const first, second = 0x1_0000_0500, 0x1_0000_0900
	s := newSlotServer()
	begun := recorded().BeginRefill(s, first, "800:803:801", true)
	begun.EndLSN, begun.Open = first, Prefix{first - 1, 10, 7}
	again := begun.BeginRefill(s, second, "900:900:", false)
	data, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	var back Position
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	s.Confirmed = second
	if start, err := back.Continue(s); start != 0 || err != nil {
		t.Errorf("continues at %s, %v", start, err)
	}
	back = back.Moved(s, second)
	if want := (Prefix{second - 1, 10, 7}); back.Open != want || !cmp.Equal(back.Refill.Earlier, []string{"800:803:801"}) || back.Refill.Until != "900:900:" || !back.Refill.Unpruned {
		t.Errorf("%+v", back)
	}
	third := back.BeginRefill(s, second+0x100, "950:950:", false)
	if want := []string{"800:803:801", "900:900:"}; !cmp.Equal(third.Refill.Earlier, want) || third.Open.Rows != 10 || !third.Refill.Unpruned {
		t.Errorf("after a third loss: %+v", third)
	}
	if other := third.EndRefill(Witness{}).BeginRefill(s, second+0x200, "960:960:", false); other.Refill.Unpruned {
		t.Error("what the operator has said of a loss is taken for another one")
	}

	for name, change := range map[string]func(p *Position, s *Server){
		"nothing acknowledged": func(p *Position, _ *Server) { p.Open = Prefix{} },
		"promoted":             func(_ *Position, s *Server) { s.Timeline = 3 },
		"no snapshot":          func(p *Position, _ *Server) { p.Refill.Until = "" },
		"too many snapshots":   func(p *Position, _ *Server) { p.Refill.Earlier = slices.Repeat([]string{"800:803:801"}, MaxSnapshot/8) },
	} {
		p, s := begun, newSlotServer()
		refill := *p.Refill
		p.Refill = &refill
		change(&p, &s)
		if over := p.BeginRefill(s, second, "900:900:", false); over.Open != (Prefix{}) || over.Refill.Earlier != nil {
			t.Errorf("%s: %+v", name, over)
		}
	}
}

func TestRefillRejectsOtherJSON(t *testing.T) {
	valid, err := json.Marshal(recorded().BeginRefill(newSlotServer(), 0x500, "800:803:801", false))
	if err != nil {
		t.Fatal(err)
	}
	for old, replaced := range map[string]string{
		`"until":"800:803:801"`:             `"until":"0:0:"`,
		`"start":"0/500"`:                   `"start":"500"`,
		`"lost":{"version":1,`:              `"lost":{"version":5,`,
		`"slot":"outbox_cdc","end_l`:        `"slot":"","end_l`,
		`"end_lsn":"1/100","generation":3,`: `"end_lsn":"1","generation":3,`,
	} {
		data := strings.Replace(string(valid), old, replaced, 1)
		if err := json.Unmarshal([]byte(data), new(Position)); err == nil || data == string(valid) {
			t.Errorf("accepted: %s", data)
		}
	}
}

// Which snapshot is valid depends on the WAL that the server shares with the server of the position record.
func TestUndelivered(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Position, *Server)
		want   string // text of the snapshot
		reason string
	}{
		"same server":      {func(*Position, *Server) {}, "750:752:750", ""},
		"no snapshot":      {func(p *Position, _ *Server) { p.Snapshots = nil }, "", "has no snapshot"},
		"promoted":         {func(_ *Position, s *Server) { s.Timeline, s.History[2] = 3, 0x1_0000_0080 }, "750:752:750", ""},
		"lost tail":        {func(_ *Position, s *Server) { s.Timeline, s.History[2] = 3, 0x1_0000_007f }, "740:740:", ""},
		"lost everything":  {func(_ *Position, s *Server) { s.Timeline, s.History[2] = 3, 0x7f }, "", "no snapshot from before that"},
		"diverged":         {func(_ *Position, s *Server) { s.Timeline = 3 }, "", "diverged"},
		"another start":    {func(_ *Position, s *Server) { s.History[1] = 0x4000 }, "", "diverged"},
		"old primary":      {func(_ *Position, s *Server) { s.Timeline, s.History = 1, nil }, "", "an older copy"},
		"older copy":       {func(_ *Position, s *Server) { s.WALEnd = 0x1_0000_00ff }, "", "an older copy"},
		"restored dump":    {func(_ *Position, s *Server) { s.SystemID = "1" }, "", "the server is system 1"},
		"another slot":     {func(_ *Position, s *Server) { s.Slot = "other" }, "", "this is slot"},
		"history is gone":  {func(_ *Position, s *Server) { s.Timeline, s.History = 3, nil }, "", "lost the history"},
		"promoted in full": {func(_ *Position, s *Server) { s.Timeline, s.History[2] = 3, 0x1_5000_0000 }, "750:752:750", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := recorded(), newSlotServer()
			tc.change(&p, &s)
			snapshot, reason := p.Undelivered(s)
			if snapshot.Text != tc.want || !strings.Contains(reason, tc.reason) || (reason == "") != (tc.want != "") {
				t.Errorf("snapshot %q, reason %q; want %q, %q", snapshot.Text, reason, tc.want, tc.reason)
			}
		})
	}
}

// A refill continues only with its own slot, before and after the first ownership.
func TestContinueRefill(t *testing.T) {
	const start = 0x1_0000_0500
	for name, tc := range map[string]struct {
		change func(*Position, *Server)
		want   uint64
		reason string
	}{
		"before":         {func(*Position, *Server) {}, 0, ""},
		"after":          {func(p *Position, _ *Server) { p.EndLSN = start }, start, ""},
		"slot advanced":  {func(_ *Position, s *Server) { s.Confirmed++ }, 0, "the slot of the refill"},
		"slot recreated": {func(p *Position, s *Server) { p.EndLSN, s.Confirmed = start, start+1 }, 0, "the slot of the refill"},
		"promoted":       {func(_ *Position, s *Server) { s.Timeline, s.History[2] = 3, start+0x100 }, 0, "advanced or re-created"},
		"another system": {func(_ *Position, s *Server) { s.SystemID = "1" }, 0, "the server is system 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlotServer()
			s.Confirmed = start
			p := recorded().BeginRefill(s, start, "800:803:801", false)
			tc.change(&p, &s)
			got, err := p.Continue(s)
			if uint64(got) != tc.want || (err == nil) != (tc.reason == "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("continues at %s, %v; want %x, %q", got, err, tc.want, tc.reason)
			}
		})
	}
}
