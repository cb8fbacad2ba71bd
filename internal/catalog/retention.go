package catalog

import (
	"fmt"
	"time"
)

// retention follows the WAL that is retained for the slot.
type retention struct {
	trend   Trend
	limitAt time.Time // at the last look, see [Trend]
	warned  Danger    // the worst since it was calm
}

// recovered is the share left from which on a later shortage is a new one.
const recovered = 0.6

// look notes a look at a slot that is there, and returns a warning when the danger is
// greater than what was warned of.
func (r *retention) look(c *State) []Warning {
	s := c.Slot
	if s == nil {
		return nil
	}
	r.limitAt = r.trend.Note(c.ReadAt, s.SafeWALSize)
	reserve := c.Reserve(r.limitAt)
	reserve.IdleAt = time.Time{} // it is about to be read
	risk := reserve.Judge(c.ReadAt)
	if risk.Danger == Calm && r.warned != Calm && reserve.freeShare() > recovered {
		r.warned = Calm
		return []Warning{{Object: slotObject(c), Over: true, Text: fmt.Sprintf("it holds %s of log, no more than it should", size(s.retained(c.WALEnd)))}}
	}
	if risk.Danger <= r.warned {
		return nil
	}
	r.warned = risk.Danger
	text := fmt.Sprintf("it holds %s of log, from %s on", size(s.retained(c.WALEnd)), s.RestartLSN)
	switch risk.Danger {
	case Unreserved:
		text += ": the next checkpoint may remove what it needs, and the slot is lost then"
	case Tenth, Soon, Half:
		text += fmt.Sprintf("; when %s more are written, the server may remove what it needs (max_slot_wal_keep_size is %s)%s",
			size(*s.SafeWALSize), size(c.MaxSlotWALKeepSize), timeLeft(risk.TimeToLimit))
	case Extended:
		text += ", which is beyond max_wal_size"
		if s.SafeWALSize == nil {
			text += "; nothing limits it, and a full disk stops the server"
		}
	case Calm, Lost: // of a lost one Look returns an error
	}
	return []Warning{{Object: slotObject(c), Text: text + "; " + retainedBy(c)}}
}

// timeLeft says how long that is, where it is known.
func timeLeft(left time.Duration) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf(", in about %s at the present rate", left.Round(max(time.Second, left/100)))
}

// retainedBy returns what keeps Postgres from removing WAL.
func retainedBy(c *State) string {
	s := c.Slot
	if behind := int64(c.WALEnd - s.ConfirmedFlushLSN); s.ConfirmedFlushLSN > c.WALEnd || behind < s.retained(c.WALEnd)/2 {
		return fmt.Sprintf("%s is confirmed, and a transaction that is open for long holds the rest: see pg_stat_activity and pg_prepared_xacts", s.ConfirmedFlushLSN)
	}
	return fmt.Sprintf("%s is confirmed, what follows is not: is the sink taking records?", s.ConfirmedFlushLSN)
}

// size prints a number of bytes.
func size(n int64) string {
	const mebi = 1 << 20
	if n > -mebi && n < mebi {
		return fmt.Sprintf("%d kB", n>>10)
	}
	return fmt.Sprintf("%d MB", n/mebi) // Postgres' MB
}
