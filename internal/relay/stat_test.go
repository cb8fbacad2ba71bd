package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// The relay is active while it streams, and a standby only while another process uses the slot.
func TestRole(t *testing.T) {
	var p phase
	for _, step := range []struct {
		state State
		err   error
		want  Role
	}{
		{Starting, nil, NoRole},
		{Waiting, replication.ErrSlotInUse, Standby},
		{Waiting, replication.ErrUnreachable, NoRole},
		{Waiting, replication.ErrSlotInUse, Standby},
		{Streaming, nil, Active},
		{Waiting, fmt.Errorf("%w; %w", replication.ErrSlotInUse, fault.ErrSenderKept), NoRole},
		{Streaming, nil, Active},
		{Waiting, sink.ErrSuperseded, Standby},
		{Stopped, nil, NoRole},
	} {
		p.setState(step.state, step.err)
		if p.role != step.want {
			t.Errorf("%s after %v: role %q, want %q", step.state, step.err, p.role, step.want)
		}
	}
	p.setState(Waiting, replication.ErrSlotInUse)
	p.setState(Streaming, nil)
	p.endSession(streamtest.ErrLost) // the latest failure is still that of the standby
	if p.role != NoRole {
		t.Errorf("after a lost session: role %q", p.role)
	}
}

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
