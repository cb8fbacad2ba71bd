package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
)

// A Server is the state of the server and the slot that a new session reads before it streams.
type Server struct {
	SystemID  string
	Timeline  int32
	History   History // of Timeline
	Slot      string
	Confirmed pglogrepl.LSN // the slot's confirmed_flush_lsn
	WALEnd    pglogrepl.LSN // end of the flushed WAL
	Standby   bool          // it replays the WAL of another server

	Reading string // what decides which transactions have rows: the publication, and settings of the relay
}

// A History maps each ancestor of a timeline to its fork, the position at which the server left it.
// WAL before the fork is the same on both timelines; after it, the same position means different data.
// A History is empty for the first timeline, and for a later one if the server has lost the history.
type History map[int32]pglogrepl.LSN

// start returns where timeline starts, which is the server's or one of its ancestors. It returns 0 for
// the first timeline, and if the start is unknown.
func (h History) start(timeline int32) pglogrepl.LSN {
	var start pglogrepl.LSN
	for ancestor, fork := range h {
		if ancestor < timeline {
			start = max(start, fork)
		}
	}
	return start
}

// Continue returns where a session on s starts: at the record, even if the slot is behind it, or at the
// fork if the server left the record's timeline before the record. It returns a [*GapError] if rows may
// be missing between that position and the first row that the server would send. It returns 0 before the
// first ownership of a refill.
func (p Position) Continue(s Server) (pglogrepl.LSN, error) {
	shared, reason := p.shared(s)
	switch {
	case reason != nil:
	case p.Refill != nil && s.Confirmed != p.Refill.Start:
		reason = fmt.Errorf("the slot of the refill starts at %s: this one was advanced or re-created by somebody else", p.Refill.Start)
	case p.Refill != nil && p.EndLSN == 0 && s.Timeline == p.Timeline:
		return 0, nil
	case s.Confirmed > shared && shared < p.EndLSN:
		reason = fmt.Errorf("the server left timeline %d at %s, before the record, and the slot was advanced or re-created after that",
			p.Timeline, shared)
	case s.Confirmed > p.EndLSN:
		reason = errors.New("the slot was advanced or re-created by somebody else, or the position store has lost its last records")
	default:
		return shared, nil
	}
	return 0, &GapError{Recorded: p, found: s, Reason: reason}
}

// Elsewhere returns a [*GapError] if p is the record of another system than s, and otherwise nil. Unlike Continue, it does not need a slot.
func (p Position) Elsewhere(s Server) error {
	if _, reason := p.shared(s); errors.Is(reason, ErrOtherSystem) {
		return &GapError{Recorded: p, found: s, Reason: reason}
	}
	return nil
}

// OfPrimary reports whether p is the record of the server whose WAL s replays. A slot on s is another one, whatever its name is: a
// relay on each would send the same rows.
func (p Position) OfPrimary(s Server) bool {
	return s.Standby && !p.Standby && p.SystemID == s.SystemID && p.Timeline == s.Timeline
}

// Why a slot cannot continue at a record that is not of this slot and of this server's WAL. A [GapError] wraps one of them, unless
// the slot is that of the record, and somebody has advanced or re-created it.
var (
	ErrOtherSystem     = errors.New("the record is of another system")
	ErrOtherSlot       = errors.New("the record is of another slot")
	ErrEarlierTimeline = errors.New("the record is of a later timeline")
	ErrOtherWAL        = errors.New("the record is of other WAL")
)

// A mismatch is a reason why a record is not of a server or slot.
type mismatch struct {
	kind error // one of the above
	text string
}

// Error returns the text.
func (m *mismatch) Error() string { return m.text }

// Unwrap returns the kind.
func (m *mismatch) Unwrap() error { return m.kind }

func mismatchf(kind error, format string, args ...any) error {
	return &mismatch{kind, fmt.Sprintf(format, args...)}
}

// shared returns the position up to which s has the same WAL as the server of the record, at most
// p.EndLSN. It returns 0 and a reason if s is another server, slot or timeline.
func (p Position) shared(s Server) (end pglogrepl.LSN, reason error) {
	fork, inHistory := s.History[p.Timeline]
	start := s.History.start(p.Timeline)
	switch {
	case p.SystemID != s.SystemID:
		return 0, mismatchf(ErrOtherSystem, "the record is of system %s, the server is system %s", p.SystemID, s.SystemID)
	case p.Slot != s.Slot:
		return 0, mismatchf(ErrOtherSlot, "the record is of slot %q, this is slot %q", p.Slot, s.Slot)
	case s.Timeline < p.Timeline:
		return 0, mismatchf(ErrEarlierTimeline, "the server is on timeline %d, the record is of timeline %d: an older copy, or the primary from before a promotion",
			s.Timeline, p.Timeline)
	case s.Timeline > p.Timeline && len(s.History) == 0:
		return 0, mismatchf(ErrOtherWAL, "the record is of timeline %d, and the server has lost the history of its timeline %d", p.Timeline, s.Timeline)
	case s.Timeline > p.Timeline && !inHistory:
		return 0, mismatchf(ErrOtherWAL, "the record is of timeline %d, and the server's timeline %d does not descend from it: the timelines have diverged",
			p.Timeline, s.Timeline)
	case start != p.TimelineStart && start != 0 && p.TimelineStart != 0:
		return 0, mismatchf(ErrOtherWAL, "timeline %d starts at %s on the server, and at %s in the record: the timelines have diverged",
			p.Timeline, start, p.TimelineStart)
	case s.Timeline > p.Timeline:
		return min(p.EndLSN, fork), nil
	case s.WALEnd < p.EndLSN:
		return 0, mismatchf(ErrOtherWAL, "the server's WAL ends at %s, before the record: an older copy, such as a restored snapshot of its disk", s.WALEnd)
	}
	return p.EndLSN, nil
}

// Moved returns p for server s and position end. It keeps the snapshots that are valid on s, and the last transaction if that is the last
// one before end there. It keeps the open transaction if neither the position nor the timeline has changed, or if a refill begins at the
// position.
func (p Position) Moved(s Server, end pglogrepl.LSN) Position {
	shared, _ := p.shared(s)
	p.Snapshots = slices.DeleteFunc(slices.Clone(p.Snapshots), func(of Snapshot) bool { return of.EndLSN > min(shared, end) })
	if end != shared || p.Last.CommitLSN >= shared || p.Reading != s.Reading {
		p.Last = Landmark{}
	}
	p.Reading = s.Reading
	if start := s.History.start(s.Timeline); start != 0 || p.Timeline != s.Timeline {
		p.TimelineStart = start
	}
	begun := p.Refill != nil && p.EndLSN == 0 && end == p.Refill.Start
	if shared != end && !begun || p.Timeline != s.Timeline {
		p.Open = Prefix{}
	}
	p.SystemID, p.Timeline, p.Slot, p.EndLSN, p.Standby = s.SystemID, s.Timeline, s.Slot, end, s.Standby
	return p
}

// LostTail reports whether s was promoted without the end of the WAL that the record covers, and where
// the timelines fork. The transactions from the fork to p.EndLSN were delivered, but s does not have
// their rows.
func (p Position) LostTail(s Server) (fork pglogrepl.LSN, lost bool) {
	shared, reason := p.shared(s)
	return shared, reason == nil && shared < p.EndLSN
}
