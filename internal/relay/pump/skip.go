package pump

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Skip makes the relay skip transactions that end at or before a given position: the relay reads,
// counts and confirms them, but does not send them. A Skip outlives sessions. While a session runs, only
// the goroutine of the pump uses it. Most methods do nothing for a nil Skip.
type Skip struct {
	to           pglogrepl.LSN
	recorded     bool // positions are recorded: a session has no start only if none was recorded, or the operator has accepted the gap
	log          *slog.Logger
	system       replication.System // of the first session; to is valid for it only
	transactions int                // number of skipped transactions
	done         bool               // no further transaction is skipped
}

// NewSkip returns the Skip of a process, or nil if to is 0. recorded says that the relay keeps a position record.
func NewSkip(to pglogrepl.LSN, recorded bool, log *slog.Logger) *Skip {
	if to == 0 {
		return nil
	}
	return &Skip{to: to, recorded: recorded, log: log}
}

// ErrSkip means that the position to skip to is not in the WAL, or that the slot does not reach back to it.
var ErrSkip = errors.New("cannot skip to this position")

// StartSession decides whether a session skips transactions. The session starts at start, or at slot if
// start is 0.
func (s *Skip) StartSession(system replication.System, start, slot, walEnd pglogrepl.LSN) error {
	switch {
	case s == nil || s.done:
	case s.system != (replication.System{}):
		if s.system != system {
			s.done = true
			s.log.Warn("skipping stopped, the slot or the server has changed",
				slog.String("skip_to", s.to.String()), slog.Int("transactions", s.transactions))
		}
	case s.to > walEnd:
		return fmt.Errorf("%w: %s is after %s, the end of the source's WAL; it may be a position of another server", ErrSkip, s.to, walEnd)
	case s.recorded && start == 0 && s.to < slot:
		return fmt.Errorf("%w: the slot starts at %s, after %s, and lacks the rows that were committed in between. If another relay has sent them, omit --skip-to; "+
			"otherwise start that relay again until it has", ErrSkip, slot, s.to)
	case s.to <= max(start, slot):
		s.done = true
		s.log.Warn("nothing to skip, this position is already confirmed",
			slog.String("skip_to", s.to.String()), slog.String("confirmed", max(start, slot).String()))
	default:
		s.system = system
	}
	return nil
}

// covers reports whether the transaction at commitLSN must be skipped.
func (s *Skip) covers(commitLSN pglogrepl.LSN) bool {
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
func (s *Skip) countTransaction() { s.transactions++ }

// notePosition records that everything before walEnd has been read. It ends the skip if that is at or after
// its end.
func (s *Skip) notePosition(walEnd pglogrepl.LSN) {
	if s != nil && !s.done && walEnd >= s.to {
		s.endSkip()
	}
}

// endSkip ends the skip and logs how many transactions it has skipped.
func (s *Skip) endSkip() {
	s.done = true
	s.log.Info("transactions skipped", slog.String("skip_to", s.to.String()), slog.Int("transactions", s.transactions))
}
