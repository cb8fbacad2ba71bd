package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/owner"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Back-off between two attempts: random in [0, min(maxBackoff, minBackoff·2ⁿ)].
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A retry backs off between attempts to start a session, for as long as the table of faults allows. The
// goroutine of [Relay.Run] uses it.
type retry struct {
	waits   *waitLog
	limit   time.Duration
	strict  bool      // first contact: the relay has neither streamed nor been a standby yet
	since   time.Time // first failure of the current series; zero: none
	attempt int
}

// A waitLog logs what the relay waits for. It logs one line per state, however often the relay retries, and
// even if numbers in the error differ.
type waitLog struct {
	log    *slog.Logger
	logged string    // the last logged error, without its numbers
	fenced time.Time // when it was last logged that the relay is fenced
}

// fencedInterval is the minimum time between two lines of a relay that is fenced: the other process may go on for days.
const fencedInterval = time.Minute

// announce logs what the relay waits for after err, unless the last line already says so.
func (w *waitLog) announce(ctx context.Context, err error) {
	state := fault.Kind(err)
	if state == w.logged {
		return
	}
	w.logged = state
	switch in := waitingState(err); {
	case in == standby && errors.Is(err, replication.ErrSlotInUse):
		var attrs []slog.Attr
		if pid := slotHolder(err); pid != "" {
			attrs = append(attrs, slog.String("pid", pid))
		}
		w.log.LogAttrs(ctx, slog.LevelInfo, "standby: another process uses the slot", attrs...)
	case in == fenced && time.Since(w.fenced) < fencedInterval:
	case in == fenced:
		w.fenced = time.Now()
		w.log.WarnContext(ctx, "fenced, taking the relay's identity back", slog.String("err", err.Error()),
			slog.String("fix", strings.Join(strings.Fields(cmp.Or(fault.Advice(err), fault.Next(err))), " ")))
	case errors.Is(err, fault.ErrCopyAccepted): // its start is logged
	case in == waitingForBroker:
		w.log.WarnContext(ctx, "waiting for the broker", slog.String("err", err.Error()))
	default:
		w.log.WarnContext(ctx, "waiting for the source", slog.String("err", err.Error()))
	}
}

// slotHolder returns the process id of the WAL sender that uses the slot, the number at the end of Postgres'
// message. It is empty if the message has none.
func slotHolder(err error) string {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	return lastNumber.FindString(refusal.Message)
}

var lastNumber = regexp.MustCompile(`\d+$`)

// steadySession is the minimum duration of a session that ends a series of failures.
const steadySession = 10 * time.Second

// reset ends the series of failures.
func (r *retry) reset() {
	r.since, r.attempt, r.waits.logged = time.Time{}, 0, ""
}

// backOff blocks until it is time for another attempt after err. It returns err if no attempt may follow,
// and the cause of ctx if that ends first.
func (r *retry) backOff(ctx context.Context, err error) error {
	now := time.Now()
	if fault.PatienceFor(err) == fault.Standby { // both sides have responded
		r.strict, r.since = false, time.Time{}
	}
	if r.since.IsZero() {
		r.since = now
	}
	if !r.allows(fault.PatienceFor(err), now.Sub(r.since)) {
		return err
	}
	r.waits.announce(ctx, err)
	backoff := rand.N(min(maxBackoff, minBackoff<<min(r.attempt, 16)) + 1)
	if errors.Is(err, position.ErrNoStore) {
		backoff = max(backoff, owner.ReleaseFor)
	}
	r.attempt++
	select {
	case <-time.After(backoff):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announceWait shows and logs what the relay waits for after err.
func (r *Relay) announceWait(ctx context.Context, err error) {
	r.state.enter(ctx, waitingState(err), err)
	r.waits.announce(ctx, err)
}

// allows reports whether another attempt may follow, waited after the first failure.
func (r *retry) allows(p fault.Patience, waited time.Duration) bool {
	switch p {
	case fault.Standby:
		return true
	case fault.Outage:
		return !r.strict || waited < r.limit
	case fault.Briefly:
		return !r.strict && waited < r.limit
	case fault.Later:
		return !r.strict
	case fault.Never:
	}
	return false
}
