package soak

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A loss removes the relay that holds the slot until the standby has taken over.
type loss struct {
	name   string
	within time.Duration // how soon the standby must send its first record
	lose   func(ctx context.Context, s *soak, active *instance) error
	undo   func(ctx context.Context, s *soak, active *instance) error
}

// losses are the cases for which a standby exists. Postgres releases the slot when its process ends, or
// after SenderTimeout if it is silent.
func losses() []loss {
	const backoff = 2 * time.Second // of the standby
	signal := func(sig syscall.Signal) func(context.Context, *soak, *instance) error {
		return func(_ context.Context, _ *soak, active *instance) error {
			return active.process.Load().Cmd.Process.Signal(sig)
		}
	}
	relaunch := func(_ context.Context, s *soak, active *instance) error {
		<-active.process.Load().Done
		return s.launch(active) //nolint:contextcheck // it outlives the test's context
	}
	var release []func()
	return []loss{
		{"kill", backoff, signal(syscall.SIGKILL), relaunch},
		{"terminate", backoff, signal(syscall.SIGTERM), relaunch},
		{"freeze", SenderTimeout + backoff, signal(syscall.SIGSTOP), signal(syscall.SIGCONT)},
		{
			"black hole", SenderTimeout + backoff,
			func(_ context.Context, _ *soak, active *instance) error {
				release = []func(){active.toPostgres.Stall(), active.toBroker.Stall()}
				return nil
			},
			func(context.Context, *soak, *instance) error {
				for _, f := range release {
					f()
				}
				return nil
			},
		},
	}
}

// settled is the least time after which a standby has reached its longest retry interval.
const settled = 3 * time.Second

// A standby sends its first record soon after the relay that holds the slot is lost. The test logs the times.
// OUTBOX_TEST_TAKEOVER_RUNS is how often each loss is tried, OUTBOX_TEST_TAKEOVER_POSTGRES the server's
// major version.
func TestTakeoverTimes(t *testing.T) {
	runs := rig.EnvInt(t, "OUTBOX_TEST_TAKEOVER_RUNS", 1)
	s := newSoak(t, soakConfig{relays: 2, major: rig.EnvInt(t, "OUTBOX_TEST_TAKEOVER_POSTGRES", 0)})
	times := map[string][]time.Duration{}
	s.underLoad(t, func() {
		for range runs {
			for _, l := range losses() {
				took := s.takeOver(t, l)
				times[l.name] = append(times[l.name], took)
				if took > l.within+rig.Slack {
					t.Errorf("%s: the standby has sent its first record after %v, it may take %v", l.name, took, l.within)
				}
			}
		}
	})
	for _, l := range losses() {
		all := times[l.name]
		t.Logf("%-12s %3d times: first record of the successor after p50 %v, max %v", l.name, len(all), round(percentile(all, 50)), round(slices.Max(all)))
	}
	s.complain(t)
}

// takeOver removes the relay that holds the slot, and returns how long it took until the standby had sent
// its first record. Afterwards there is a standby again.
func (s *soak) takeOver(t *testing.T, l loss) time.Duration {
	t.Helper()
	var active *instance
	for now := s.holder(t); now != active; now = s.holder(t) { // on a machine that stops for seconds, the standby takes over by itself
		active = now
		time.Sleep(settled)
	}
	before := s.confirms.Again()
	s.checker.Fault(l.name, time.Now(), func() int { return s.confirms.Again() - before })
	producers := s.checker.Progress().Producers
	began := time.Now()
	rig.Must(t, l.lose(t.Context(), s, active))
	wait.For(t, "a record of the standby after "+l.name, func() bool {
		return s.checker.Progress().Producers > producers
	})
	took := time.Since(began)
	rig.Must(t, l.undo(t.Context(), s, active))
	if !s.alive(time.Now(), Strike{Attacks: []Step{{Attack: RelayKill}}}) {
		t.Fatalf("%s: no progress", l.name)
	}
	return took
}

// holder waits until one relay has the slot and the other waits for it, and returns the one that has it.
func (s *soak) holder(t *testing.T) (active *instance) {
	t.Helper()
	wait.For(t, "one relay to have the slot and the other to wait", func() bool {
		has := s.active(t.Context())
		if has < 0 {
			return false
		}
		active = s.relays[has]
		log := s.relays[1-has].process.Load().Stderr.String()
		return strings.LastIndex(log, "another process uses the slot") > strings.LastIndex(log, "msg=streaming")
	})
	return active
}
