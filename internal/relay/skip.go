package relay

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pglogrepl"
)

// A skip keeps the relay from sending transactions that end at a given position or before. They
// are read, counted and confirmed. A skip outlives sessions. While one runs it belongs to the pump's
// goroutine. The methods of nil do nothing.
type skip struct {
	to           pglogrepl.LSN
	log          *slog.Logger
	slot         slotIdentity // of the first session: to is valid for it only
	transactions int          // skipped so far
	done         bool         // nothing more is skipped
}

func newSkip(to pglogrepl.LSN, log *slog.Logger) *skip {
	if to == 0 {
		return nil
	}
	return &skip{to: to, log: log}
}

// errSkip: the position to skip to is not in the WAL.
var errSkip = errors.New("nothing can be skipped up to there")

// startSession decides whether a session skips: one that starts at start, or, if that is 0, at the
// slot's own position.
func (s *skip) startSession(id slotIdentity, start, slot, walEnd pglogrepl.LSN) error {
	switch {
	case s == nil || s.done:
	case s.slot != (slotIdentity{}):
		if s.slot != id {
			s.done = true
			s.log.Warn("skipping ends here: the slot or its server is another one now",
				slog.String("skip_to", s.to.String()), slog.Int("transactions", s.transactions))
		}
	case s.to > walEnd:
		return fmt.Errorf("%w: %s is behind %s, the end of the source's log: is it a position of another server?", errSkip, s.to, walEnd)
	case s.to <= max(start, slot):
		s.done = true
		s.log.Warn("nothing to skip: the slot is there already",
			slog.String("skip_to", s.to.String()), slog.String("confirmed", max(start, slot).String()))
	default:
		s.slot = id
	}
	return nil
}

// covers reports whether the transaction that commits at commitLSN must be skipped.
func (s *skip) covers(commitLSN pglogrepl.LSN) bool {
	if s == nil || s.done {
		return false
	}
	if commitLSN < s.to {
		return true
	}
	s.endSkip()
	return false
}

// countTransaction counts a skipped transaction that had rows.
func (s *skip) countTransaction() { s.transactions++ }

// notePosition notes that everything before walEnd has been read, and ends the skip behind its end.
func (s *skip) notePosition(walEnd pglogrepl.LSN) {
	if s != nil && !s.done && walEnd >= s.to {
		s.endSkip()
	}
}

// endSkip ends the skip and logs how many transactions it has skipped.
func (s *skip) endSkip() {
	s.done = true
	s.log.Info("skipped", slog.String("skip_to", s.to.String()), slog.Int("transactions", s.transactions))
}
