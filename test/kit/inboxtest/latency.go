package inboxtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const burst = 25

// Latency measures the time from the production of an event to the commit of its handler's transaction. It
// produces events one at a time, in bursts, with a pause after each burst.
func Latency(b *testing.B, subject Subject) {
	b.Helper()
	r := newSetup(b, subject)
	p := r.processor(b, 0, nil)
	r.start(b, p)
	r.produce(b, keys(burst)...)
	handled := uint64(burst)
	done := func() bool { return p.Stat().Types["A"].Handled == handled }
	wait.For(b, "the first events", done)
	before := p.Stat().Types["A"].Age
	for b.Loop() {
		for _, key := range keys(burst) {
			r.produce(b, key)
			time.Sleep(rand.N(2 * time.Millisecond))
		}
		handled += burst
		wait.For(b, "a burst", done)
		time.Sleep(20 * time.Millisecond)
	}
	age := p.Stat().Types["A"].Age
	for i := range age.Counts {
		age.Counts[i] -= before.Counts[i]
	}
	age.Count -= before.Count
	for _, percent := range []uint64{50, 99} {
		b.ReportMetric(percentile(age, percent).Seconds()*1000, fmt.Sprintf("p%d-ms", percent))
	}
	b.ReportMetric(float64(age.Count), "events")
}

// percentile returns the upper bound of the bucket that contains the percentile.
func percentile(h inbox.Histogram, percent uint64) time.Duration {
	for i, n := range h.Counts {
		if n*100 >= h.Count*percent {
			return h.Bounds[i]
		}
	}
	return time.Duration(1<<63 - 1)
}
