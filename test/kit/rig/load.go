package rig

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Cycles returns how many faults each crash test injects. It is OUTBOX_TEST_CYCLES, by default 3 in a
// full run and 1 otherwise.
func Cycles(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_CYCLES", 3)
	}
	return EnvInt(t, "OUTBOX_TEST_CYCLES", 1)
}

// Rows returns the number of rows of a large workload. It is OUTBOX_TEST_ROWS, by default 100,000 in a
// full run and 20,000 otherwise.
func Rows(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_ROWS", 100_000)
	}
	return EnvInt(t, "OUTBOX_TEST_ROWS", 20_000)
}

// UnderLoad runs f while the workload writes a few thousand rows a second, or two hundred unless the run is a full one.
// It stops the workload when f returns.
func UnderLoad(t *testing.T, r *Rig, f func()) {
	t.Helper()
	pace := 40 * time.Millisecond
	if need.Full() {
		pace = 2 * time.Millisecond
	}
	UnderLoadAt(t, r, pace, f)
}

// UnderLoadAt is like UnderLoad. Each writer pauses for pace, on average, between two transactions.
func UnderLoadAt(t *testing.T, r *Rig, pace time.Duration, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { // also if f calls t.FailNow
		stop()
		<-done
	}()
	r.Load.Pace = pace
	r.Load.MaxRows = 10
	go func() { // the deferred function waits for it
		defer close(done)
		r.Load.Run(ctx, t, 1<<30)
	}()
	f()
}

// Progress waits until an event that is committed after the call is in the topic.
func (r *Rig) Progress(t *testing.T) {
	t.Helper()
	before := r.Load.Total()
	wait.For(t, "an event to be committed", func() bool { return r.Load.Total() > before })
	r.Arrived(t)
}

// Unconfirmed is the maximum number of duplicates after the relay is killed: the events of one status
// interval and those in flight, with a margin for slow machines.
const Unconfirmed = 20_000

// Silent waits until no more records arrive in the topic although the workload commits events.
func (r *Rig) Silent(t *testing.T) {
	t.Helper()
	wait.For(t, "the topic to fall silent", func() bool {
		records, committed := r.Collector.Count(), r.Load.Total()
		time.Sleep(300 * time.Millisecond)
		return r.Collector.Count() == records && r.Load.Total() > committed
	})
}

// Recover waits until an event that is committed after the call is in the topic, and returns how long
// that took. Tests call it when a fault has ended.
func (r *Rig) Recover(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	r.Progress(t)
	took := time.Since(began)
	t.Logf("recovered in %v", took.Round(time.Millisecond))
	return took
}

// Slack is a margin for loaded machines. Tests add it to the limit of a wait. A relay that has not
// recovered by then does not recover without intervention.
const Slack = 45 * time.Second
