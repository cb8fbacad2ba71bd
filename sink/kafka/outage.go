package kafka

import (
	"context"
	"errors"
	"sync"
	"time"
)

// outageGap is the maximum time without an attempt in an outage. After that, it is unknown whether the cluster
// still fails.
const outageGap = 5 * time.Second

// An outage records since when attempts outside of a [producer] have failed, such as connecting to the cluster
// or reading positions.
type outage struct {
	mu         sync.Mutex
	attempting int       // number of attempts in progress
	since      time.Time // start of the first failed attempt; zero: no outage
	failedAt   time.Time // end of the last failed attempt
	cause      error     // of the last failed attempt
	mentioned  bool      // "not ready" was logged
	warned     bool      // the outage was logged
	reached    bool      // an attempt has succeeded before
}

// attempt calls f and records its result, unless ctx was canceled.
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

// stall returns the outage as a stall, if it continues.
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

// shouldMention reports true once per outage, unless a warning was logged.
func (o *outage) shouldMention() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := !o.mentioned && !o.warned
	o.mentioned = true
	return first
}

// shouldWarn reports true once per outage: after warnAfter if a broker responds that it is not ready, otherwise
// immediately.
func (o *outage) shouldWarn(notReady bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.warned || o.since.IsZero() || notReady && time.Since(o.since) < warnAfter {
		return false
	}
	o.warned = true
	return true
}
