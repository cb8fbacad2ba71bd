package catalog

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A Danger says how close Postgres is to invalidating a slot. A greater Danger is worse.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
type Danger int

// The dangers.
const (
	Calm       Danger = iota
	Extended          // the slot retains more than max_wal_size: the disk fills
	Half              // less than half of the limit is left
	Soon              // less than an hour is left: at the current rate, with some of the limit used, or until idle_replication_slot_timeout
	Tenth             // less than a tenth of the limit is left
	Unreserved        // Postgres may invalidate the slot at the next checkpoint
	Lost              // the slot is invalidated
)

// soon is the time to the limit that is a Danger, however much WAL is left.
const soon = time.Hour

// hardlyUsed is the share of the limit that is left if nothing but the time between two steps of a healthy slot is retained. Then the rate
// says nothing: Postgres advances the restart_lsn of a slot only now and then.
const hardlyUsed = 0.95

// A Level is the severity of a Danger for an operator.
type Level int

// The levels.
const (
	LevelOK       Level = iota
	LevelWarning        // Extended, Half
	LevelCritical       // Soon, Tenth, Unreserved
	LevelLost
)

// String returns the text of l in JSON.
func (l Level) String() string { return [...]string{"ok", "warning", "critical", "lost"}[l] }

// A Reserve is the state of the WAL that Postgres retains for a slot.
type Reserve struct {
	WALStatus    string // Slot.WALStatus
	Invalidation string // Slot.InvalidationReason
	Retained     int64  // bytes
	Safe         *int64 // Slot.SafeWALSize

	LimitAt time.Time // when Safe reaches 0 at the current rate, see [Trend]; zero: unknown, or it does not shrink
	IdleAt  time.Time // when Postgres invalidates the slot if it stays inactive; zero: never

	Refills bool // a relay that runs refills the gap itself after the loss of the slot
}

// Reserve returns the Reserve of the slot of c, which must exist.
func (c *State) Reserve(limitAt time.Time) Reserve {
	s := c.Slot
	r := Reserve{
		WALStatus: s.WALStatus, Invalidation: s.InvalidationReason, Retained: s.retained(c.WALEnd), Safe: s.SafeWALSize,
		LimitAt: limitAt,
	}
	if c.IdleSlotTimeout > 0 && !s.Active && !s.InactiveSince.IsZero() {
		r.IdleAt = s.InactiveSince.Add(c.IdleSlotTimeout)
	}
	return r
}

// freeShare returns the share of the limit that is left, from 0 to 1. It is 1 if there is no limit.
func (r Reserve) freeShare() float64 {
	if r.Safe == nil {
		return 1
	}
	safe := float64(*r.Safe)
	return max(0, safe) / max(1, safe+float64(r.Retained))
}

// A Risk is the judgement of a Reserve. Only [Reserve.Judge] makes one, so that status, page, check,
// metrics and log agree.
type Risk struct {
	Danger      Danger
	TimeToLimit time.Duration // at least 1 s; 0: unknown, or Safe does not shrink

	Limit string // how much WAL Postgres may still write before it may remove what the slot needs; empty: there is no slot

	Title, Why, Advice string // for an operator; empty if Danger is Calm
}

// Level returns the severity of the Danger.
func (r Risk) Level() Level {
	switch r.Danger {
	case Calm:
		return LevelOK
	case Extended, Half:
		return LevelWarning
	case Soon, Tenth, Unreserved:
		return LevelCritical
	case Lost:
	}
	return LevelLost
}

func (r Reserve) isLost() bool { return r.WALStatus == "lost" || r.Invalidation != "" }

func (r Reserve) limit() string {
	switch {
	case r.isLost():
		return "none any more: the slot is invalidated"
	case r.Safe == nil:
		return "none: Postgres stops when the disk is full"
	case *r.Safe <= 0:
		return "reached"
	}
	return terminal.Size(*r.Safe) + " left"
}

// Judge returns how close Postgres is, at the time now, to invalidating the slot, and what to do.
func (r Reserve) Judge(now time.Time) Risk {
	risk := Risk{Limit: r.limit()}
	if r.Safe != nil && !r.LimitAt.IsZero() {
		risk.TimeToLimit = max(time.Second, r.LimitAt.Sub(now))
	}
	idle := !r.IdleAt.IsZero() && r.IdleAt.Sub(now) < soon
	switch left := r.freeShare(); {
	case r.isLost():
		risk.Danger = Lost
	case r.WALStatus == "unreserved", left == 0:
		risk.Danger = Unreserved
	case left < 0.1:
		risk.Danger = Tenth
	case idle, risk.TimeToLimit > 0 && risk.TimeToLimit < soon && left < hardlyUsed:
		risk.Danger = Soon
	case left < 0.5:
		risk.Danger = Half
	case r.WALStatus == "extended":
		risk.Danger = Extended
	}
	if risk.Danger == Soon && idle {
		risk.Title, risk.Why, risk.Advice = r.idleTexts(now)
	} else {
		risk.Title, risk.Why, risk.Advice = r.texts(risk)
	}
	return risk
}

const moreRoom = "Let the relay catch up, or give it more room: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();"

func (r Reserve) texts(risk Risk) (title, why, advice string) {
	const lost, mayRemove = "The slot is about to be lost", "Postgres may remove WAL that is not relayed yet, "
	switch risk.Danger {
	case Lost:
		why = "Postgres has removed WAL that was not relayed yet"
		if r.Invalidation != "" {
			why += " (" + r.Invalidation + ")"
		}
		if r.Refills {
			return "The slot is lost", why + ".",
				"Let a relay run: it creates the slot again and sends the missing rows from the table, because source.on_slot_loss is refill. If it cannot, its last error says why."
		}
		return "The slot is lost", why + ".",
			"Stop the relay, if one runs, then " + InstructRecover + ": it creates the slot again and sends the missing rows from the table. See docs/recover.md."
	case Unreserved:
		return lost, mayRemove + "at the next checkpoint.", moreRoom
	case Tenth, Soon:
		return lost, mayRemove + r.untilLimit(risk), moreRoom
	case Half:
		return "The slot is filling", "Less than half of max_slot_wal_keep_size is left: Postgres may remove WAL that the slot needs, " + r.untilLimit(risk), moreRoom
	case Extended:
		why = fmt.Sprintf("Postgres retains %s of WAL for the slot, more than max_wal_size, and the disk fills.", terminal.Size(r.Retained))
		if r.Safe == nil {
			why += " There is no limit, and a full disk stops Postgres."
		}
		return "The slot retains much WAL", why, "If much of it is not delivered, let the relay catch up. Otherwise a long transaction needs it: end that as docs/alerts.md#end-a-long-transaction says."
	case Calm:
	}
	return "", "", ""
}

// untilLimit returns the end of a sentence: how much is left to the limit, which must exist.
func (r Reserve) untilLimit(risk Risk) string {
	text := "after " + terminal.Size(*r.Safe) + " more WAL"
	if risk.TimeToLimit > 0 {
		text += ", in " + terminal.Duration(risk.TimeToLimit.Seconds()) + " at this rate"
	}
	return text + "."
}

func (r Reserve) idleTexts(now time.Time) (title, why, advice string) {
	return "The slot is about to be lost",
		fmt.Sprintf("No relay uses it, and idle_replication_slot_timeout ends in %s.", terminal.Duration(max(0, r.IdleAt.Sub(now)).Seconds())),
		"Start the relay: outbox-cdc run. To keep unused slots: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"
}

// A Trend measures how fast the retained WAL of a slot approaches its limit. The zero value is ready to
// use. One goroutine at a time uses it.
type Trend struct {
	looks []safeAt
}

// A safeAt is a value of Slot.SafeWALSize.
type safeAt struct {
	at   time.Time
	safe int64
}

const (
	// The value follows a sawtooth: it grows whenever the slot's restart_lsn advances. So it counts as
	// shrinking only if it shrinks over both periods.
	shortTrend = time.Minute
	longTrend  = 5 * time.Minute

	// leastTrend is the minimum period for a rate, so that a short burst is no trend.
	leastTrend = 10 * time.Second
)

// Note adds safe, a value of Slot.SafeWALSize, and returns when it will reach 0 at the current rate. It
// returns zero if safe does not shrink, is nil, or was observed for too short a time.
func (t *Trend) Note(at time.Time, safe *int64) (limitAt time.Time) {
	if safe == nil {
		t.looks = nil
		return time.Time{}
	}
	t.looks = append(t.looks, safeAt{at, *safe})
	t.looks = t.looks[t.since(longTrend):]
	short, long := t.limitAt(shortTrend), t.limitAt(longTrend)
	switch {
	case short.IsZero() || long.IsZero():
		return time.Time{}
	case short.After(long):
		return short
	}
	return long
}

// since returns the index of the newest value that is at least d older than the last one, or 0 if there
// is none.
func (t *Trend) since(d time.Duration) int {
	i, last := 0, t.looks[len(t.looks)-1]
	for i+1 < len(t.looks) && last.at.Sub(t.looks[i+1].at) >= d {
		i++
	}
	return i
}

// limitAt returns when the value reaches 0 at its rate over the last d. Zero: it does not shrink.
func (t *Trend) limitAt(d time.Duration) time.Time {
	const forever = 100 * 365 * 24 * time.Hour
	first, last := t.looks[t.since(d)], t.looks[len(t.looks)-1]
	used, took := first.safe-last.safe, last.at.Sub(first.at)
	if used <= 0 || took <= 0 || took < leastTrend {
		return time.Time{}
	}
	left := float64(max(0, last.safe)) / float64(used) * float64(took)
	return last.at.Add(time.Duration(min(left, float64(forever))))
}
