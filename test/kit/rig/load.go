package rig

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// Cycles returns how many faults each crash test injects: OUTBOX_TEST_CYCLES, by default 3 in a full
// run and 1 otherwise.
func Cycles(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_CYCLES", 3)
	}
	return EnvInt(t, "OUTBOX_TEST_CYCLES", 1)
}

// Rows returns the number of rows of a large workload: OUTBOX_TEST_ROWS, by default 100,000. A run that
// is not full writes a fifth of them.
func Rows(t *testing.T) int {
	t.Helper()
	if need.Full() {
		return EnvInt(t, "OUTBOX_TEST_ROWS", 100_000)
	}
	return EnvInt(t, "OUTBOX_TEST_ROWS", 20_000)
}

// UnderLoad runs f while the workload writes at a moderate rate. Writing stops when f returns.
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

// Progress waits until an event that is committed after the call has arrived in the topic.
func (r *Rig) Progress(t *testing.T) {
	t.Helper()
	before := r.Load.Total()
	WaitFor(t, 30*time.Second, "an event to be committed", func() bool { return r.Load.Total() > before })
	r.Arrived(t, 30*time.Second)
}

// Unconfirmed is how many events may be duplicated after a kill: those written in a status interval
// and those in flight, with a margin for slow machines.
const Unconfirmed = 20_000

// Silent waits until no more events arrive although events are committed.
func (r *Rig) Silent(t *testing.T) {
	t.Helper()
	WaitFor(t, 30*time.Second, "the topic to fall silent", func() bool {
		records, committed := r.Collector.Count(), r.Load.Total()
		time.Sleep(300 * time.Millisecond)
		return r.Collector.Count() == records && r.Load.Total() > committed
	})
}

// Recover waits, after a fault has ended, until an event that is committed after the call has arrived,
// and returns how long that took.
func (r *Rig) Recover(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	r.Progress(t)
	took := time.Since(began)
	t.Logf("recovered in %v", took.Round(time.Millisecond))
	return took
}

// Slack is added to the limits of waits, for loaded machines. A relay that has not recovered by then
// will not recover without intervention.
const Slack = 45 * time.Second
