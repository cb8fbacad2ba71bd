package relay

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
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

// WAL that a read of the catalog has shown is lag until Postgres has sent it, whatever Postgres waits for.
func TestBehindUnsentWAL(t *testing.T) {
	r, err := New(Config{Name: "orders", Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for second, step := range []struct {
		name          string
		end, received pglogrepl.LSN // at the time of the read
		arrives       pglogrepl.LSN // before the Stat
		behind        time.Time
	}{
		{"sent soon after", 200, 100, 200, time.Time{}},
		{"withheld", 300, 200, 0, at(1)},
		{"still withheld, and more of it", 400, 200, 0, at(1)},
		{"the older part is sent", 400, 300, 0, at(3)},
		{"all is sent", 400, 400, 0, time.Time{}},
		{"withheld again", 500, 400, 0, at(5)},
		{"another server", 450, 400, 0, at(6)},
		{"caught up", 450, 400, 450, time.Time{}},
	} {
		r.progress.StartOwnership(step.received)
		r.noteSlot(&catalog.State{WALEnd: step.end, ReadAt: at(second)})
		if step.arrives != 0 {
			r.progress.StartOwnership(step.arrives)
		}
		if got := r.Stat().Behind; !got.Equal(step.behind) {
			t.Errorf("%s: behind since %s, want %s", step.name, got, step.behind)
		}
	}
}
