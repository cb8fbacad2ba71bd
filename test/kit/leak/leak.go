// Package leak fails a test binary that leaves goroutines behind.
//
// Package goleak waits about half a second for goroutines that are ending. On a busy machine, those of a closed server or connection need
// more than that, and nothing tells when they are done. So this package waits much longer before it takes a goroutine for a leak.
package leak

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A Runner runs tests: a *testing.M or a wrapped one.
type Runner interface{ Run() int }

// VerifyTestMain is like [goleak.VerifyTestMain], and fails only if goroutines are left after [wait.Patience]. Call it from TestMain.
// It ignores the goroutine of package go-metrics, which sarama starts once and nothing ends.
func VerifyTestMain(m Runner, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(wait.Patience(), opts...); err != nil {
			fmt.Fprintf(os.Stderr, "leak: after the tests have passed: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// find returns an error if goroutines are left after the limit.
func find(limit time.Duration, opts ...goleak.Option) error {
	opts = append(opts, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
	end := time.Now().Add(limit)
	for {
		err := goleak.Find(opts...) // waits for about half a second
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
