package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"
)

// Back-off between attempts at the source: random in [0, min(maxBackoff, minBackoff·2ⁿ)].
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// retry is the patience with the source, and with Kafka where a session reads the position
// from it, over a series of failed attempts. It belongs to the goroutine of [Relay.Run].
type retry struct {
	log     *slog.Logger
	limit   time.Duration
	strict  bool      // first contact: nothing has streamed yet
	since   time.Time // when the current series of failures began; zero: there is none
	attempt int
	logged  string // the state that was logged last: an error without its numbers
}

// numbers of ports, processes, seconds and positions differ between errors of one state.
var numbers = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+|\d+`)

// succeeded ends the series of failures.
func (r *retry) succeeded() {
	r.since, r.attempt, r.logged = time.Time{}, 0, ""
}

// wait returns nil when it is time for another attempt. Otherwise it returns the error that
// ends the process: err itself when patience with it is over, the cause of ctx when that
// ended first.
func (r *retry) wait(ctx context.Context, err error) error {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	f := faultOf(err)
	if !r.patient(f.patience, now.Sub(r.since)) {
		return err
	}
	if state := numbers.ReplaceAllString(err.Error(), "#"); state != r.logged {
		r.logged = state
		if f.exit == ExitSink {
			r.log.WarnContext(ctx, "waiting for Kafka", slog.String("err", err.Error()))
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

func (r *retry) patient(p patience, waited time.Duration) bool {
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
