package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"
)

// Back-off between two attempts: random in [0, min(maxBackoff, minBackoff·2ⁿ)].
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A retry backs off between attempts to start a session, as long as the table of faults allows. It
// belongs to the goroutine of [Relay.Run].
type retry struct {
	log     *slog.Logger
	limit   time.Duration
	strict  bool      // first contact: nothing has streamed yet
	since   time.Time // the first of the present series of failures; zero: there is none
	attempt int
	logged  string // the last error logged, without its numbers
}

// steadySession is how long a session lasts that is no part of a series of failures.
const steadySession = 10 * time.Second

// numbers matches what differs between errors of one kind: ports, processes, seconds, positions.
var numbers = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+|\d+`)

// reset ends the series of failures.
func (r *retry) reset() {
	r.since, r.attempt, r.logged = time.Time{}, 0, ""
}

// backOff blocks until it is time for another attempt after err. It returns err if there is to be
// none, and the cause of ctx if that ends first.
func (r *retry) backOff(ctx context.Context, err error) error {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	f := faultOf(err)
	if !r.allows(f.patience, now.Sub(r.since)) {
		return err
	}
	if state := numbers.ReplaceAllString(err.Error(), "#"); state != r.logged {
		r.logged = state
		if f.exit == ExitSink {
			r.log.WarnContext(ctx, "waiting for the broker", slog.String("err", err.Error()))
		} else {
			r.log.WarnContext(ctx, "waiting for the source", slog.String("err", err.Error()))
		}
	}
	backoff := rand.N(min(maxBackoff, minBackoff<<min(r.attempt, 16)) + 1)
	r.attempt++
	select {
	case <-time.After(backoff):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// allows reports whether another attempt may follow after so long.
func (r *retry) allows(p patience, waited time.Duration) bool {
	switch p {
	case standby:
		return true
	case outage:
		return !r.strict || waited < r.limit
	case briefly:
		return !r.strict && waited < r.limit
	case never:
	}
	return false
}
