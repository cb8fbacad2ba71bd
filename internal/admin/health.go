package admin

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

const (
	// stuckAfter is how long the relay may not answer, or be over without the process ending,
	// until it counts as stuck. No lock of it is held so long.
	stuckAfter = time.Minute

	// stallAfter is how long the sink may make no progress until the relay is not ready: less
	// is a leader that moves.
	stallAfter = 10 * time.Second
)

// stuck says why only a restart can help; empty if it cannot.
func (s *Server) stuck(now time.Time) string {
	last := s.last.Load()
	switch {
	case last == nil:
		return "" // before Run
	case now.Sub(last.at) > stuckAfter:
		return fmt.Sprintf("the relay has not answered for %s", now.Sub(last.at).Round(time.Second))
	case last.stat.State == relay.Stopped && now.Sub(last.stat.Since) > stuckAfter:
		return fmt.Sprintf("the relay stopped %s ago, and the process did not end", now.Sub(last.stat.Since).Round(time.Second))
	}
	return ""
}

// unready says why records do not get to Kafka; empty if they do, or would.
func (s *Server) unready(now time.Time) string {
	last := s.last.Load()
	if last == nil {
		return "starting"
	}
	if reason := s.stuck(now); reason != "" {
		return reason
	}
	st := &last.stat
	stalled := ""
	if lasted := last.stalled(); lasted >= stallAfter {
		stalled = fmt.Sprintf("Kafka has not acknowledged for %s: %s", lasted.Round(time.Second), st.Sink.StallReason)
	}
	switch {
	case st.State == relay.Streaming:
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
	return n > 0 && st.Failures[n-1].ExitCode == relay.ExitSink
}
