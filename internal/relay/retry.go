package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Back-off between two attempts: random in [0, min(maxBackoff, minBackoff·2ⁿ)].
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A retry backs off between attempts to start a session, as long as the table of faults allows. It
// belongs to the goroutine of [Relay.Run].
type retry struct {
	waits   *waitLog
	limit   time.Duration
	strict  bool      // first contact: nothing has streamed yet
	since   time.Time // the first of the present series of failures; zero: there is none
	attempt int
}

// A waitLog logs what the relay waits for: one line per state, however often the relay retries and
// whichever numbers in the error differ.
type waitLog struct {
	log    *slog.Logger
	logged string // the last error, without its numbers
}

// announce logs what the relay waits for because of err, unless the last line already says so.
func (w *waitLog) announce(ctx context.Context, err error) {
	state := numbers.ReplaceAllString(err.Error(), "#")
	if state == w.logged {
		return
	}
	w.logged = state
	switch {
	case errors.Is(err, replication.ErrSlotInUse) && !errors.Is(err, errSenderKept):
		var attrs []slog.Attr
		if pid := slotHolder(err); pid != "" {
			attrs = append(attrs, slog.String("pid", pid))
		}
		w.log.LogAttrs(ctx, slog.LevelInfo, "standby: another process uses the slot", attrs...)
	case faultOf(err).exit == ExitSink:
		w.log.WarnContext(ctx, "waiting for the broker", slog.String("err", err.Error()))
	default:
		w.log.WarnContext(ctx, "waiting for the source", slog.String("err", err.Error()))
	}
}

// slotHolder returns the server process that uses the slot: the number that Postgres' message ends with. It is
// empty if there is none.
func slotHolder(err error) string {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	return lastNumber.FindString(refusal.Message)
}

var lastNumber = regexp.MustCompile(`\d+$`)

// steadySession is how long a session must last to end a series of failures.
const steadySession = 10 * time.Second

// numbers matches what differs between errors of one kind: ports, processes, seconds, positions.
var numbers = regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+|\d+`)

// reset ends the series of failures.
func (r *retry) reset() {
	r.since, r.attempt, r.waits.logged = time.Time{}, 0, ""
}

// backOff blocks until it is time for another attempt after err. It returns err if there is to be
// none, and the cause of ctx if that ends first.
func (r *retry) backOff(ctx context.Context, err error) error {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	if !r.allows(faultOf(err).patience, now.Sub(r.since)) {
		return err
	}
	r.waits.announce(ctx, err)
	backoff := rand.N(min(maxBackoff, minBackoff<<min(r.attempt, 16)) + 1)
	if errors.Is(err, errNoStore) {
		backoff = max(backoff, handOverFor)
	}
	r.attempt++
	return pause(ctx, backoff)
}

// pause waits for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
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
