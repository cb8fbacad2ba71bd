package redistest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	startTimeout = 2 * time.Minute
	needsServer  = "it needs a real Redis"
)

// Start starts a server for this test alone and stops it when the test ends. Unless the run is a full one, Start skips
// the test.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	return start(tb, cfg, "")
}

func start(tb testing.TB, cfg Config, mode string) *Server {
	tb.Helper()
	need.FullRun(tb, needsServer)
	need.Program(tb, program)
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := launch(ctx, cfg, mode)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the log of the server at %s:\n%s", s.Addr(), s.log)
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the server: %v", err)
		}
	})
	return s
}

var names atomic.Int64 //nolint:gochecknoglobals // numbers the names of a process

// UniqueName returns a name for a key that no other test of this machine uses.
func UniqueName(tb testing.TB) string {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, tb.Name())
	return strings.Join([]string{name, strconv.Itoa(os.Getpid()), strconv.FormatInt(names.Add(1), 10)}, "-")
}

// await blocks until cond returns true.
func await(tb testing.TB, what string, cond func(ctx context.Context) bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	for !cond(ctx) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		}
	}
}
