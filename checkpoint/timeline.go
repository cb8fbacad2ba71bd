package checkpoint

import (
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
)

// A Server is what a new session reads from the server before it streams.
type Server struct {
	SystemID  string
	Timeline  int32
	History   History // of Timeline
	Slot      string
	Confirmed pglogrepl.LSN // the slot's confirmed_flush_lsn
	WALEnd    pglogrepl.LSN // how far the WAL is flushed
}

// A History says at which position each ancestor of a timeline was left. What lies before that position
// is the same on both; behind it the same position names other data. It is empty for the first timeline,
// and for a later one whose history the server has lost.
type History map[int32]pglogrepl.LSN

// start returns where a timeline of h begins: that of the server or an ancestor. It returns 0 for the
// first one, and if that is not known.
func (h History) start(timeline int32) pglogrepl.LSN {
	var start pglogrepl.LSN
	for ancestor, fork := range h {
		if ancestor < timeline {
			start = max(start, fork)
		}
	}
	return start
}

// Continue returns where a session that finds s may start: at the record, which the slot may be behind,
// or at the fork if the server left the record's timeline before the record. It returns a *GapError if
// rows may be missing between that and what the server would send.
func (p Position) Continue(s Server) (pglogrepl.LSN, error) {
	shared, reason := p.shared(s)
	switch {
	case reason != "":
	case s.Confirmed > p.EndLSN:
		reason = "the slot was advanced or re-created by somebody else"
	case s.Confirmed > shared:
		reason = fmt.Sprintf("the server left timeline %d at %s, before the record, and the slot was advanced or re-created after that",
			p.Timeline, shared)
	default:
		return shared, nil
	}
	return 0, &GapError{Recorded: p, found: s, Reason: reason}
}

// shared returns up to where the log of s is the one that p is about, p.EndLSN at most; 0 and why, if it is
// not.
func (p Position) shared(s Server) (end pglogrepl.LSN, reason string) {
	fork, inHistory := s.History[p.Timeline]
	start := s.History.start(p.Timeline)
	switch {
	case p.SystemID != s.SystemID:
		return 0, fmt.Sprintf("the record is of system %s, the server is system %s", p.SystemID, s.SystemID)
	case p.Slot != s.Slot:
		return 0, fmt.Sprintf("the record is of slot %q, this is slot %q", p.Slot, s.Slot)
	case s.Timeline < p.Timeline:
		return 0, fmt.Sprintf("the server is on timeline %d, the record is of timeline %d: an older copy, or the primary from before a promotion",
			s.Timeline, p.Timeline)
	case s.Timeline > p.Timeline && len(s.History) == 0:
		return 0, fmt.Sprintf("the record is of timeline %d, and the server has lost the history of its timeline %d", p.Timeline, s.Timeline)
	case s.Timeline > p.Timeline && !inHistory:
		return 0, fmt.Sprintf("the record is of timeline %d, and the server's timeline %d does not descend from it: the timelines have diverged",
			p.Timeline, s.Timeline)
	case start != p.TimelineStart && start != 0 && p.TimelineStart != 0:
		return 0, fmt.Sprintf("timeline %d starts at %s on the server, and at %s in the record: the timelines have diverged",
			p.Timeline, start, p.TimelineStart)
	case s.Timeline > p.Timeline:
		return min(p.EndLSN, fork), ""
	case s.WALEnd < p.EndLSN:
		return 0, fmt.Sprintf("the server's WAL ends at %s, before the record: an older copy, such as a restored snapshot of its disk", s.WALEnd)
	}
	return p.EndLSN, ""
}

// Moved returns p at end, a position of s. It has those snapshots that count on s, and the open
// transaction if nothing has moved.
func (p Position) Moved(s Server, end pglogrepl.LSN) Position {
	shared, _ := p.shared(s)
	p.Snapshots = slices.DeleteFunc(slices.Clone(p.Snapshots), func(of Snapshot) bool { return of.EndLSN > shared })
	if start := s.History.start(s.Timeline); start != 0 || p.Timeline != s.Timeline {
		p.TimelineStart = start
	}
	if shared != end || p.Timeline != s.Timeline {
		p.Open = Prefix{}
	}
	p.SystemID, p.Timeline, p.Slot, p.EndLSN = s.SystemID, s.Timeline, s.Slot, end
	return p
}

// LostTail reports whether s was promoted without the end of the log that p is about, and where it left
// that: the records of what was committed from there to p.EndLSN are delivered, and s does not have the
// rows.
func (p Position) LostTail(s Server) (fork pglogrepl.LSN, lost bool) {
	shared, reason := p.shared(s)
	return shared, reason == "" && shared < p.EndLSN
}
