package admin

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

const (
	// stuckAfter is the time without a sample, or after the relay has stopped, until the process counts
	// as stuck. The relay holds no lock for so long.
	stuckAfter = time.Minute

	// stallAfter is the time without progress of the sink until the relay is not ready. A leader
	// election takes less.
	stallAfter = 10 * time.Second
)

// stuck returns why the process must be restarted; empty if it need not be.
func (s *Server) stuck(now time.Time) string {
	last := s.last.Load()
	switch {
	case last == nil:
		return "" // before Run
	case now.Sub(last.at) > stuckAfter:
		return fmt.Sprintf("the relay has been stuck for %s", now.Sub(last.at).Round(time.Second))
	case last.stat.State == relay.Stopped && now.Sub(last.stat.Since) > stuckAfter:
		return fmt.Sprintf("the relay stopped %s ago, but the process has not exited", now.Sub(last.stat.Since).Round(time.Second))
	}
	return ""
}

// readiness returns the relay's role, and why the relay is not ready. The problem is empty if the relay delivers
// records, or is a standby that would deliver them.
func (s *Server) readiness(now time.Time) (role relay.Role, problem string) {
	last := s.last.Load()
	if last == nil {
		return relay.NoRole, "starting"
	}
	if stuck := s.stuck(now); stuck != "" {
		return last.stat.Role, stuck
	}
	return last.stat.Role, last.unready(s.cfg.Broker)
}

// unready returns why a relay that is not stuck is not ready; empty if it is. broker is the name of its kind.
func (last *sample) unready(broker string) string {
	st := &last.stat
	stalled := ""
	if lasted := last.stalled(); lasted >= stallAfter {
		what := broker + " has not acknowledged"
		if st.Unsaved {
			what = "the position file could not be written"
		}
		stalled = fmt.Sprintf("%s for %s: %s", what, lasted.Round(time.Second), st.Sink.StallReason)
	}
	switch {
	case stalled == "" && st.Role == relay.Active && len(st.Slot.Standbys) > 0:
		return withheldTitle + ": " + withheld(st.Slot.Standbys)
	case st.Role != relay.NoRole:
		return stalled
	case st.LastError == "":
		return string(st.State)
	case stalled != "" && !waitsForSink(st):
		return string(st.State) + ": " + st.LastError + "; " + stalled
	}
	return string(st.State) + ": " + st.LastError
}

// waitsForSink reports whether the relay waits for the broker.
func waitsForSink(st *relay.Stat) bool {
	n := len(st.Failures)
	return n > 0 && st.Failures[n-1].ExitCode == exit.Sink
}
