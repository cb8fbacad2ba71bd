package kafka

import (
	"context"
	"errors"
	"sync"
	"time"
)

// outageGap is for how long nothing may be attempted within one outage: after that it is not known
// whether the cluster still fails.
const outageGap = 5 * time.Second

// An outage is since when what is attempted outside of a [producer] has failed: to reach the cluster, to
// read positions.
type outage struct {
	mu         sync.Mutex
	attempting int       // attempts under way
	since      time.Time // start of the first failed attempt; zero: there is no outage
	failedAt   time.Time // end of the last one
	cause      error     // of the last one
	mentioned  bool      // an answer that asks for patience has been logged
	warned     bool      // the outage has been logged
	reached    bool      // an attempt has succeeded before
}

// attempt calls f and notes how it ends, unless it is ctx that is canceled.
func (o *outage) attempt(ctx context.Context, f func() error) error {
	o.mu.Lock()
	o.attempting++
	o.mu.Unlock()
	start := time.Now()
	err := f()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempting--
	switch {
	case err == nil:
		o.since, o.mentioned, o.warned, o.reached = time.Time{}, false, false, true
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
	default:
		if o.since.IsZero() || start.Sub(o.failedAt) > outageGap {
			o.since, o.mentioned, o.warned = start, false, false
		}
		o.failedAt, o.cause = time.Now(), err
	}
	return err
}

// stall returns the outage if it goes on.
func (o *outage) stall(now time.Time) stall {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || o.attempting == 0 && now.Sub(o.failedAt) > outageGap {
		return stall{}
	}
	return stall{since: o.since, reason: o.cause.Error()}
}

// isFirstContact reports whether no attempt has succeeded yet.
func (o *outage) isFirstContact() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.reached
}

// shouldMention reports, once in an outage that has not been warned of, that it has begun.
func (o *outage) shouldMention() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := !o.mentioned && !o.warned
	o.mentioned = true
	return first
}

// shouldWarn reports, once in an outage, that it is worth a warning: after warnAfter if a broker has
// answered that it is not ready, else at once.
func (o *outage) shouldWarn(notReady bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.warned || o.since.IsZero() || notReady && time.Since(o.since) < warnAfter {
		return false
	}
	o.warned = true
	return true
}
