package catalog

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A Danger is how near Postgres is to removing WAL that a slot needs. A greater one is worse.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
type Danger int

// The dangers.
const (
	Calm       Danger = iota
	Extended          // more than max_wal_size is retained: the disk fills
	Half              // less than half of what may be retained is left
	Soon              // less than an hour is left, at the present rate or of idle_replication_slot_timeout
	Tenth             // less than a tenth is left
	Unreserved        // the next checkpoint may remove WAL that the slot needs
	Lost              // the slot is invalidated
)

// soon is how near the limit has to be to worry somebody whatever is left.
const soon = time.Hour

// A Level is what a Danger means to an operator.
type Level int

// The levels.
const (
	LevelOK       Level = iota
	LevelWarning        // the slot fills
	LevelCritical       // it is about to be lost
	LevelLost
)

// String returns the word for l in JSON.
func (l Level) String() string { return [...]string{"ok", "warning", "critical", "lost"}[l] }

// A Reserve is what is known about the WAL that Postgres retains for a slot.
type Reserve struct {
	WALStatus    string // as in [Slot]
	Invalidation string // the same: InvalidationReason
	Retained     int64
	Safe         *int64 // as Slot.SafeWALSize

	LimitAt time.Time // when Safe is used up at the present rate, see [Trend]; zero: not known, or it does not shrink
	IdleAt  time.Time // when Postgres invalidates the slot if nobody reads it; zero: never
}

// Reserve returns what c says of its slot, which must be there.
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

// freeShare returns the share of what may be retained that is left; 1 where nothing limits it.
func (r Reserve) freeShare() float64 {
	if r.Safe == nil {
		return 1
	}
	safe := float64(*r.Safe)
	return max(0, safe) / max(1, safe+float64(r.Retained))
}

// A Risk is how a slot stands. It is judged in [Reserve.Judge] and nowhere else.
type Risk struct {
	Danger      Danger
	TimeToLimit time.Duration // at least 1 s; 0: not known, or Safe does not shrink

	Title, Why, Advice string // sentences for an operator; empty if Danger is Calm
}

// Level returns what the danger means.
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

// Judge says how near Postgres is at now to removing WAL that the slot needs, and what to do.
func (r Reserve) Judge(now time.Time) Risk {
	risk := Risk{}
	if r.Safe != nil && !r.LimitAt.IsZero() {
		risk.TimeToLimit = max(time.Second, r.LimitAt.Sub(now))
	}
	idle := !r.IdleAt.IsZero() && r.IdleAt.Sub(now) < soon
	switch left := r.freeShare(); {
	case r.WALStatus == "lost", r.Invalidation != "":
		risk.Danger = Lost
	case r.WALStatus == "unreserved", left == 0:
		risk.Danger = Unreserved
	case left < 0.1:
		risk.Danger = Tenth
	case idle, risk.TimeToLimit > 0 && risk.TimeToLimit < soon:
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
	const lost, mayRemove = "The slot is about to be lost", "Postgres may remove log that is not relayed yet, "
	switch risk.Danger {
	case Lost:
		why = "Postgres has removed log that was not relayed yet"
		if r.Invalidation != "" {
			why += " (" + r.Invalidation + ")"
		}
		return "The slot is lost", why + ".",
			"The log it needs is gone. Rows that are still in the table can be sent again; then make a slot anew: outbox-cdc setup."
	case Unreserved:
		return lost, mayRemove + "at the next checkpoint.", moreRoom
	case Tenth, Soon:
		return lost, mayRemove + r.untilLimit(risk), moreRoom
	case Half:
		return "The slot is filling", "Less than half of its room is left: Postgres may remove log that it needs, " + r.untilLimit(risk), moreRoom
	case Extended:
		why = fmt.Sprintf("Postgres keeps %s of log for it, more than max_wal_size, and the disk fills.", terminal.Size(float64(r.Retained)))
		if r.Safe == nil {
			why += " Nothing limits it, and a full disk stops the server."
		}
		return "The slot holds much log", why, "Let the relay catch up. A transaction that is open for long holds log too: see pg_stat_activity and pg_prepared_xacts."
	case Calm:
	}
	return "", "", ""
}

// untilLimit ends a sentence with what is left, which has a limit.
func (r Reserve) untilLimit(risk Risk) string {
	text := "when " + terminal.Size(float64(*r.Safe)) + " more are written"
	if risk.TimeToLimit > 0 {
		text += ", in " + terminal.Span(risk.TimeToLimit.Seconds()) + " at this rate"
	}
	return text + "."
}

func (r Reserve) idleTexts(now time.Time) (title, why, advice string) {
	return "The slot is about to be lost",
		fmt.Sprintf("Nobody reads it, and idle_replication_slot_timeout ends in %s.", terminal.Span(max(0, r.IdleAt.Sub(now)).Seconds())),
		"Start the relay: outbox-cdc run. To keep slots that nobody reads: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"
}

// A Trend measures how fast the WAL that may still be retained for a slot is used up. It belongs
// to one goroutine at a time; the zero value has seen nothing.
type Trend struct {
	looks []safeAt
}

// A safeAt is how much may still be retained at a moment.
type safeAt struct {
	at   time.Time
	safe int64
}

const (
	// A reserve moves in teeth: it grows again when the slot's restart_lsn advances. So it counts
	// as shrinking if it does over both of these.
	shortTrend = time.Minute
	longTrend  = 5 * time.Minute

	// leastTrend is the least time that a rate is measured over: a burst between two looks that
	// follow each other at once is none.
	leastTrend = 10 * time.Second
)

// Note notes safe, which is as Slot.SafeWALSize, and returns when it is used up if it goes on
// shrinking as it did; zero if it does not shrink, has no limit or has been watched too shortly.
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

// since returns the index of the newest look that is at least d older than the last, or of the
// first one.
func (t *Trend) since(d time.Duration) int {
	i, last := 0, t.looks[len(t.looks)-1]
	for i+1 < len(t.looks) && last.at.Sub(t.looks[i+1].at) >= d {
		i++
	}
	return i
}

// limitAt goes by the rate over d.
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
