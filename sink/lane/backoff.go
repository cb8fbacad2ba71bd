package lane

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 50 * time.Millisecond

	// backoffMax limits the wait after a transient error, and so the delay of a recovery.
	backoffMax = 2 * time.Second

	// backoffDenied limits the wait after an error that a person has to fix.
	backoffDenied = 10 * time.Second
)

// backoff returns how long to wait after the given failed attempt, counted from 0: a random part of
// min(limit, 50 ms·2ⁿ).
func backoff(attempt int, limit time.Duration) time.Duration {
	ceiling := min(limit, backoffBase<<min(attempt, 10))
	return time.Duration(rand.Float64() * float64(ceiling))
}

// A retryState records since when attempts have failed, and why.
type retryState struct {
	attempts int       // number of failed attempts since the last success
	since    time.Time // start of the first failed attempt
	retryAt  time.Time
	cause    error
}

// recordFailure adds a failed attempt, which started at start, and sets the time of the next one.
func (t *retryState) recordFailure(cause error, start, now time.Time, limit time.Duration) {
	if t.attempts == 0 {
		t.since = start
	}
	t.retryAt = now.Add(backoff(t.attempts, limit))
	t.attempts++
	t.cause = cause
}

// sleep waits for d and reports whether it did before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal puts a token into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
