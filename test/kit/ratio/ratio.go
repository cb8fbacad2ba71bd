// Package ratio tests that hot code does not become slower. A test states by which factor its code
// may be slower than a baseline:
//
//	func TestGate(t *testing.T) {
//		ratio.Gate(t, 2.5, func() { decode(rows) }, func() { copyRows(rows) })
//	}
//
// The baseline is part of the test. It is the least work that gives the same result. Gate measures both
// functions alternately in the same process. So the ratio, unlike a duration, hardly depends on the
// load of the machine, and less on its processor. A limit is 1.5 to 2 times the highest ratio measured on the
// processors that were tried. A gate therefore detects code that becomes twice as slow on one of them, not code that
// becomes slower by a tenth.
//
// Gates run only in a full run ([need.FullRun]), because other runs may use the race detector.
// `make bench-gate` runs only the gates.
package ratio

import (
	"math"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

const (
	sample = 2 * time.Millisecond // one measurement

	// minRounds take about half a second, maxRounds about two seconds. If other
	// processes slow the floor down during all rounds, any code passes, so there are
	// at least minRounds. If they slow the tested code down, it gets more rounds.
	minRounds = 100
	maxRounds = 500
)

// Gate fails the test if ours takes more than limit times as long as floor. It calls each
// function many times and compares their shortest times, which other processes disturb
// least.
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
	t.Logf("%.2f times the floor (%.0f ns to %.0f ns), the limit is %.2f", ratio, a.time, b.time, limit)
	if ratio > limit {
		t.Errorf("%.2f times the floor, the limit is %.2f", ratio, limit)
	}
}

// A best is the shortest time that a function has taken.
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
