package admin

import (
	"context"
	"log/slog"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
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
