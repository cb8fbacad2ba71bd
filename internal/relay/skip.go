package relay

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pglogrepl"
)

// A skip is the beginning of the log that the operator does not want to have sent: transactions
// that end at to or before. They are read and confirmed, which tells how many they are. It
// outlives sessions; the methods of nil do nothing. Those that are called while a session runs
// belong to the publication's goroutine.
type skip struct {
	to    pglogrepl.LSN
	log   *slog.Logger
	epoch epoch // of the first session: in another the same number names other data
	n     int   // skipped so far
	over  bool
}

func newSkip(to pglogrepl.LSN, log *slog.Logger) *skip {
	if to == 0 {
		return nil
	}
	return &skip{to: to, log: log}
}

// errSkip: what is to be skipped cannot be.
var errSkip = errors.New("nothing can be skipped up to there")

// begin is for a session that starts at start, or, if that is 0, at the slot's own position.
func (s *skip) begin(e epoch, start, slot, walEnd pglogrepl.LSN) error {
	switch {
	case s == nil || s.over:
	case s.epoch != (epoch{}):
		if s.epoch != e {
			s.over = true
			s.log.Warn("skipping ends here: the slot or its server is another one now",
				slog.String("skip_to", s.to.String()), slog.Int("transactions", s.n))
		}
	case s.to > walEnd:
		return fmt.Errorf("%w: %s is behind %s, the end of the source's log: is it a position of another server?", errSkip, s.to, walEnd)
	case s.to <= max(start, slot):
		s.over = true
		s.log.Warn("nothing to skip: the slot is there already",
			slog.String("skip_to", s.to.String()), slog.String("confirmed", max(start, slot).String()))
	default:
		s.epoch = e
	}
	return nil
}

// covers reports whether the transaction that commits at commitLSN is not to be sent.
func (s *skip) covers(commitLSN pglogrepl.LSN) bool {
	if s == nil || s.over {
		return false
	}
	if commitLSN < s.to {
		return true
	}
	s.end()
	return false
}

// passed counts a transaction that had rows and was not sent.
func (s *skip) passed() { s.n++ }

// reached notes that everything before walEnd has been read.
func (s *skip) reached(walEnd pglogrepl.LSN) {
	if s != nil && !s.over && walEnd >= s.to {
		s.end()
	}
}

func (s *skip) end() {
	s.over = true
	s.log.Info("skipped", slog.String("skip_to", s.to.String()), slog.Int("transactions", s.n))
}
