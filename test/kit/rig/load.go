package rig

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// Cycles is how often each crash test breaks something: OUTBOX_TEST_CYCLES, or 3, and once in
// a run that is not full.
func Cycles(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_CYCLES", 3)
	}
	return EnvInt(t, "OUTBOX_TEST_CYCLES", 1)
}

// Rows is the size of a big run: OUTBOX_TEST_ROWS, or 100,000, of which a run that is not full
// writes a fifth.
func Rows(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_ROWS", 100_000)
	}
	return EnvInt(t, "OUTBOX_TEST_ROWS", 20_000)
}

// UnderLoad runs f while the workload writes at a moderate pace, and stops the writing
// when f returns.
func UnderLoad(t *testing.T, r *Rig, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { // also when f has ended the test
		stop()
		<-done
	}()
	r.Load.Pace = 2 * time.Millisecond
	r.Load.MaxRows = 10
	go func() { // waited for below
		defer close(done)
		r.Load.Run(ctx, t, 1<<30)
	}()
	f()
}

// Progress waits until an event that was committed after the call has arrived.
func (r *Rig) Progress(t *testing.T) {
	t.Helper()
	before := r.Load.Total()
	WaitFor(t, 30*time.Second, "an event to be committed", func() bool { return r.Load.Total() > before })
	r.Arrived(t, 30*time.Second)
}

// Unconfirmed is how many events a kill may repeat: what is written in a status interval
// and what is in flight, with room for a slow machine.
const Unconfirmed = 20_000

// Silent waits until nothing arrives any more, although events are committed.
func (r *Rig) Silent(t *testing.T) {
	t.Helper()
	WaitFor(t, 30*time.Second, "the topic to fall silent", func() bool {
		records, committed := r.Collector.Count(), r.Load.Total()
		time.Sleep(300 * time.Millisecond)
		return r.Collector.Count() == records && r.Load.Total() > committed
	})
}

// Recover demands that what waited for the end of a fault arrives, and returns how long
// after the call it did.
func (r *Rig) Recover(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	r.Progress(t)
	took := time.Since(began)
	t.Logf("recovered in %v", took.Round(time.Millisecond))
	return took
}

// Slack is for a machine that has other things to do than what is timed: a relay that is not
// back by then will not be by itself.
const Slack = 45 * time.Second
