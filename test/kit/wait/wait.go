// Package wait waits for conditions in tests.
//
// A limit of a wait is no claim about the relay: on a busy machine, everything may take ten times as long. So a test waits for a
// condition, not for a time, and gives up only when the condition will not come true.
package wait

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// Between two looks at a condition pass 5 ms, and more the longer it takes, because a look may run a program.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = 100 * time.Millisecond
)

// Patience is how long a test waits for one condition: two minutes, and ten in a full run, whose tests move millions of rows.
func Patience() time.Duration {
	if need.Full() {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// For polls cond until it returns true. If that takes longer than [Patience], it fails the test with the name of the condition
// and logs what saw returns.
func For(tb testing.TB, what string, cond func() bool, saw ...func() any) {
	tb.Helper()
	limit := time.NewTimer(Patience())
	defer limit.Stop()
	for pause := firstPause; !cond(); pause = min(pause+pause/8, maxPause) {
		select {
		case <-time.After(pause):
		case <-limit.C:
			for _, f := range saw {
				tb.Log(f())
			}
			tb.Fatalf("waited %v for %s", Patience(), what)
		}
	}
}

// Receive returns what is received from c. It fails the test if that takes longer than [Patience].
func Receive[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience()):
		tb.Fatalf("waited %v for %s", Patience(), what)
		panic("unreachable")
	}
}
