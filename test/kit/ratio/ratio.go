// Package ratio tests that hot code does not become slower. A test states by which factor its code
// may be slower than a baseline:
//
//	func TestGate(t *testing.T) {
//		ratio.Gate(t, 2.5, func() { decode(rows) }, func() { copyRows(rows) })
//	}
//
// The baseline, part of the test, is the least work that gives the same result. Both functions are
// measured in the same process, alternately, so that the ratio, unlike a duration, hardly depends
// on the machine and its load. A limit is 1.5 to 2 times the ratio measured when it was written: a
// gate detects code that becomes twice as slow, not code that becomes slower by a tenth.
//
// Gates run only in a full run ([need.FullRun]): other runs may have the race detector on.
// `make bench-gate` runs nothing else.
package ratio

import (
	"math"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	sample = 2 * time.Millisecond // one measurement

	// About half a second and two seconds. A floor that something interferes with
	// throughout would let anything pass; code that is interfered with gets more time.
	minRounds = 100
	maxRounds = 500
)

// Gate fails the test if ours takes more than limit times as long as floor. Each is called
// many times and compared by its best measurement, which is the one nothing interfered
// with.
func Gate(t *testing.T, limit float64, ours, floor func()) {
	t.Helper()
	need.FullRun(t, "it measures for seconds")
	a, b := newBest(ours), newBest(floor)
	ratio := math.Inf(1)
	for round := 0; round < minRounds || ratio > limit && round < maxRounds; round++ {
		a.measure()
		b.measure()
		ratio = a.time / b.time
	}
	t.Logf("%.2f times its floor (%.0f ns to %.0f ns), at most %.2f", ratio, a.time, b.time, limit)
	if ratio > limit {
		t.Errorf("%.2f times its floor, at most %.2f is allowed", ratio, limit)
	}
}

// A best is the shortest time a function has taken.
type best struct {
	f    func()
	n    int     // calls in a measurement
	time float64 // of one call, in nanoseconds
}

func newBest(f func()) *best {
	b := &best{f: f, n: 1, time: math.Inf(1)}
	for b.took() < sample {
		b.n *= 2
	}
	return b
}

func (b *best) took() time.Duration {
	start := time.Now()
	for range b.n {
		b.f()
	}
	return time.Since(start)
}

func (b *best) measure() {
	b.time = min(b.time, float64(b.took().Nanoseconds())/float64(b.n))
}
