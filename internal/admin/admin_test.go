package admin

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// run runs s until the test ends, and returns its address.
func run(t *testing.T, s *Server, stat func() relay.Stat) (url string) {
	t.Helper()
	if err := s.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, stat) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Log(err)
		}
	})
	return "http://" + s.Addr() + "/"
}

// TestUnacknowledged: time passes without an acknowledgement only while records are in flight and their number of acknowledged ones
// does not grow.
func TestUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newServer(nil), healthy()
		look := func(inFlight int, acked int64) time.Duration {
			st.Sink.InFlightRecords, st.Sink.Topics = inFlight, map[string]sink.TopicStat{"t": {Records: acked}}
			s.takeSample(func() relay.Stat { return st })
			<-time.After(interval)
			return s.last.Load().unacknowledged()
		}
		for i, step := range []struct {
			inFlight int
			acked    int64
			want     float64 // seconds
		}{{5, 10, 0}, {5, 10, 1}, {9, 10, 2}, {5, 14, 0}, {5, 14, 1}, {0, 19, 0}, {0, 19, 0}, {1, 19, 1}} {
			if got := look(step.inFlight, step.acked).Seconds(); got != step.want {
				t.Errorf("look %d: %g s, want %g s", i, got, step.want)
			}
		}
	})
}
