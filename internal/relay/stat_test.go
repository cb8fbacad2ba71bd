package relay

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A position file that cannot be written is a stall, like a position store at the broker.
func TestPositionFileStalls(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &Relay{store: position.NewStore(position.Place{File: filepath.Join(plain, "position")}, "orders", slog.New(slog.DiscardHandler))}
	opened := make(chan error)
	go func() { opened <- r.store.Open(ctx, nil) }()
	wait.For(t, "the stall", func() bool { st, unsaved := r.sinkStat(); return unsaved && strings.Contains(st.StallReason, plain) })
	cancel()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st, unsaved := r.sinkStat(); unsaved || !st.StalledSince.IsZero() {
		t.Errorf("%+v", st)
	}
}
