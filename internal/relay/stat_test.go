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
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A reportingSource reports the confirmed position every second until the connection is lost. It stays open until
// the test lets it close.
type reportingSource struct {
	scriptedSource
	closing chan struct{}
}

func (s *reportingSource) Run(ctx context.Context, confirmed func() pglogrepl.LSN, _ chan<- *replication.Batch) error {
	for {
		s.reported = confirmed()
		select {
		case <-time.After(time.Second):
		case <-s.lost:
			return errLost
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *reportingSource) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	<-s.closing
	return s.scriptedSource.Close(ctx, confirmed)
}

// While the position store does not respond, the relay confirms no position to Postgres, and Stat says
// so, although every record is acknowledged.
func TestStatTellsWhatPostgresWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &positiontest.Store{}
		r := &Relay{deadLetters: newDeadLetters(Config{}, nil, slog.New(slog.DiscardHandler)), neighbours: pump.NewNeighbours(nil)}
		storeIn(t, r, store)
		positiontest.Begin(t, r.positions, positiontest.Server(50))
		tracker := positiontest.Start(t, r.positions, positiontest.Server(50))
		store.Allow = make(chan error)
		src := &reportingSource{closing: make(chan struct{})}
		s := startSession(t.Context(), src, slotIdentity{}, 1, &r.flow, &r.phase)
		r.flow.tracker.Store(tracker)
		s.positions.Store(r.positions)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		began := time.Now()
		positiontest.Deliver(tracker, 110) // before run, which otherwise may write the position at which the ownership starts
		go func() { ran <- r.positions.Run(ctx) }()
		bubble.Sleep(40 * time.Second)
		if st := r.Stat(); st.Confirmed != 0 || st.Behind.Sub(began) > time.Second || st.Behind.IsZero() {
			t.Errorf("nothing is recorded for 40 s: confirmed %s, behind since %s", st.Confirmed, st.Behind.Sub(began))
		}
		store.Allow <- nil
		bubble.Sleep(3 * time.Second)
		if st := r.Stat(); st.Confirmed != 110 || !st.Behind.IsZero() {
			t.Errorf("it is recorded and reported: confirmed %s, behind since %s", st.Confirmed, st.Behind)
		}
		stop()
		close(src.closing)
		if err := s.close(t.Context(), errStopReading); err != nil {
			t.Error(err)
		}
		<-ran
	})
}

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
	p.endSession(errLost) // the latest failure is still that of the standby
	if p.role != NoRole {
		t.Errorf("after a lost session: role %q", p.role)
	}
}

// Stat shows a lost session immediately, while its connection is still being closed. It does not show a position as
// confirmed that the session could no longer report.
func TestLostSessionIsShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Relay{deadLetters: newDeadLetters(Config{}, nil, slog.New(slog.DiscardHandler)), neighbours: pump.NewNeighbours(nil)}
		storeIn(t, r, nil)
		w, tracker := positiontest.Started(t, &positiontest.Store{}, positiontest.Server(50))
		positiontest.Deliver(tracker, 110)
		src := &reportingSource{scriptedSource: scriptedSource{lost: make(chan struct{})}, closing: make(chan struct{})}
		s := startSession(t.Context(), src, slotIdentity{}, 1, &r.flow, &r.phase)
		r.phase.setState(Streaming, nil)
		s.positions.Store(w)
		bubble.Sleep(5 * time.Second)
		positiontest.Write(t, w)
		close(src.lost)
		synctest.Wait()
		if st := r.Stat(); st.State != Waiting || !strings.Contains(st.LastError, errLost.Error()) || st.Confirmed != 0 || len(st.Failures) > 0 {
			t.Errorf("%s because of %q, confirmed %s, %d failures", st.State, st.LastError, st.Confirmed, len(st.Failures))
		}
		close(src.closing)
		_ = s.close(t.Context(), errStopReading)
		if st := r.Stat(); st.Confirmed != 110 {
			t.Errorf("after the last report confirmed is %s", st.Confirmed)
		}
	})
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
