package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// outageGap is the maximum time without an attempt in an outage. After that, it is unknown whether the broker still
	// fails.
	outageGap = 5 * time.Second

	// attemptTimeout limits an attempt, so that a server that does not respond does not keep us from another one.
	attemptTimeout = 10 * time.Second
)

var errNoResponse = fmt.Errorf("no response within %s", attemptTimeout)

// An outage records since when attempts outside of a [Writer] have failed, such as connecting to the broker or reading
// positions.
type outage struct {
	mu         sync.Mutex
	attempting int       // number of attempts in progress
	since      time.Time // start of the first failed attempt; zero: no outage
	failedAt   time.Time // end of the last failed attempt
	cause      error     // of the last failed attempt
	warned     bool      // the outage was logged
	reached    bool      // an attempt has succeeded before
}

// attempt calls f and records its result, unless ctx was canceled.
func (o *outage) attempt(ctx context.Context, f func(context.Context) error) error {
	o.mu.Lock()
	o.attempting++
	o.mu.Unlock()
	start := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, attemptTimeout, errNoResponse)
	err := f(limited)
	cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempting--
	switch {
	case err == nil:
		o.since, o.warned, o.reached = time.Time{}, false, true
	case isFinal(err):
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
	default:
		if o.since.IsZero() || start.Sub(o.failedAt) > outageGap {
			o.since, o.warned = start, false
		}
		o.failedAt, o.cause = time.Now(), err
	}
	return err
}

// stall returns the outage as a stall, if it continues. advice is for a cause that has none.
func (o *outage) stall(now time.Time, advice string) stall {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || o.attempting == 0 && now.Sub(o.failedAt) > outageGap {
		return stall{}
	}
	return stall{since: o.since, reason: o.cause.Error(), advice: cmp.Or(sink.AdviceOf(o.cause), advice)}
}

// warns reports true once per outage, and whether the broker was never reached.
func (o *outage) warns() (warn, firstContact bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	warn = !o.warned && !o.since.IsZero()
	o.warned = o.warned || warn
	return warn, !o.reached
}

// isFinal reports whether a retry does not help.
func isFinal(err error) bool {
	return errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrFatal) || errors.Is(err, sink.ErrMissing) || errors.Is(err, sink.ErrSuperseded)
}

// isOver reports whether ctx has ended or its deadline has passed. A dialer may detect the deadline first.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
