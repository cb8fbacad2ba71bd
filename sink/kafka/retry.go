package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	backoffBase = 50 * time.Millisecond

	// backoffMax limits the wait after a transient error, and so the delay of a recovery. It is also the
	// maximum of the Java client (KIP-580).
	backoffMax = time.Second

	// backoffDenied limits the wait after an error that a person has to fix.
	backoffDenied = 10 * time.Second
)

// backoff returns how long to wait after the given failed attempt, counted from 0: jitter, in [0, 1), times
// min(1 s, 50 ms·2ⁿ). Partitions that fail together use the same jitter, so that they are retried together, in one
// metadata request and one produce request.
func backoff(attempt int, jitter float64) time.Duration {
	ceiling := min(backoffMax, backoffBase<<min(attempt, 8))
	return time.Duration(jitter * float64(ceiling))
}

// asksElsewhere reports whether another broker is used after so many failed attempts, because the current one may have
// outdated metadata. That gets rarer with the number of attempts, because each needs a new connection.
func asksElsewhere(attempts int) bool {
	return attempts >= 2 && (attempts <= 8 || attempts%10 == 0)
}

// A retryState records since when attempts have failed, and why.
type retryState struct {
	attempts int       // number of failed attempts since the last success
	since    time.Time // start of the first failed attempt
	retryAt  time.Time
	cause    error
}

// recordFailure adds a failed attempt, which started at start, and sets the time of the next one.
func (t *retryState) recordFailure(cause error, start, now time.Time, jitter float64) {
	if t.attempts == 0 {
		t.since = start
	}
	t.retryAt = now.Add(backoff(t.attempts, jitter))
	t.attempts++
	t.cause = cause
}

// sleepUntil waits until t and reports whether it did before ctx ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// warnAfter is how long a broker may respond that it is not ready before that is logged as a warning. Every broker
// does so for a while after its start.
const warnAfter = 10 * time.Second

// retryTransient retries attempt while its error is transient, until ctx ends. It logs one warning: immediately if
// there is no response or an unknown one, after warnAfter if a broker is not ready.
func (c *client) retryTransient(ctx context.Context, attempt func() error) error {
	return c.retryUntil(ctx, firstContactError, attempt)
}

// retryUntil is retryTransient, and ends with the error that final returns for one of attempt, unless that is nil.
func (c *client) retryUntil(ctx context.Context, final func(error) error, attempt func() error) error {
	var last error // of an attempt that did not time out
	for n := 0; ; n++ {
		if asksElsewhere(n) {
			c.control.askAnother(ctx, nil)
		}
		err := c.outage.attempt(ctx, attempt)
		if err == nil {
			return nil
		}
		if last == nil || !isOver(ctx) {
			last = err
		}
		if err := final(err); err != nil {
			return err
		}
		c.counters.recordError(err.Error())
		answer, answered := errors.AsType[*codeError](err)
		odd := answered && classify(answer.code) == unexpected || errors.Is(err, sink.ErrAccess)
		switch {
		case isOver(ctx): // the caller gets the error, which may be that of its own deadline
		case c.outage.shouldWarn(answered && !odd):
			if c.outage.isFirstContact() {
				c.log.WarnContext(ctx, "kafka not reached yet", slog.Any("err", err))
			} else {
				c.log.WarnContext(ctx, "kafka request failed, retrying", slog.Any("err", err))
			}
		case answered && c.outage.shouldMention():
			c.log.InfoContext(ctx, "kafka is not ready yet", slog.Any("err", err))
		}
		if !sleepUntil(ctx, time.Now().Add(backoff(n, rand.Float64()))) {
			return fmt.Errorf("%w at %s: %w (last cause: %w)",
				unreachable(last), strings.Join(c.cfg.Brokers, ", "), context.Cause(ctx), last)
		}
	}
}

// isOver reports whether ctx has ended or its deadline has passed. A dialer may detect the deadline first.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// firstContactError returns the error with which Open fails immediately, or nil if a retry may help.
func firstContactError(err error) error {
	if errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrSuperseded) {
		return err
	}
	answer, ok := errors.AsType[*codeError](err)
	if !ok {
		return nil
	}
	if c := classifyRead(answer.code); c == accessDenied {
		return fmt.Errorf("%w: %w", errAccess, err)
	} else if c == fatal {
		return fmt.Errorf("%w: %w", errFatal, err)
	}
	return nil
}
