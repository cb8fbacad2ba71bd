package catalog

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// retention follows the WAL that Postgres retains for the slot.
type retention struct {
	trend   Trend
	limitAt time.Time // result of the last look, see [Trend]
	warned  Danger    // the greatest danger that was warned of since Calm
}

// recovered is the free share above which the danger is over, and a later one is warned of again.
const recovered = 0.6

// look compares a State with the previous ones. It returns a warning if the danger is greater than
// the last one that was warned of, or if it is over.
func (r *retention) look(c *State) []Warning {
	s := c.Slot
	if s == nil {
		return nil
	}
	r.limitAt = r.trend.Note(c.ReadAt, s.SafeWALSize)
	reserve := c.Reserve(r.limitAt)
	reserve.IdleAt = time.Time{} // the relay is about to use the slot
	risk := reserve.Judge(c.ReadAt)
	if risk.Danger == Calm && r.warned != Calm && reserve.freeShare() > recovered {
		r.warned = Calm
		return []Warning{{Object: slotObject(c), Over: true, Text: fmt.Sprintf("it retains %s of WAL, which is below the limit again", terminal.Size(s.retained(c.WALEnd)))}}
	}
	if risk.Danger <= r.warned {
		return nil
	}
	r.warned = risk.Danger
	text := fmt.Sprintf("it retains %s of WAL, from %s on", terminal.Size(s.retained(c.WALEnd)), s.RestartLSN)
	switch risk.Danger {
	case Unreserved:
		text += ": Postgres may invalidate the slot at the next checkpoint"
	case Tenth, Soon, Half:
		text += fmt.Sprintf("; after %s more WAL, Postgres may invalidate the slot (max_slot_wal_keep_size is %s)%s",
			terminal.Size(*s.SafeWALSize), terminal.Size(c.MaxSlotWALKeepSize), timeLeft(risk.TimeToLimit))
	case Extended:
		text += ", which exceeds max_wal_size"
		if s.SafeWALSize == nil {
			text += "; there is no limit, and a full disk stops Postgres"
		}
	case Calm, Lost: // Look returns an error for an invalidated slot
	}
	return []Warning{{Object: slotObject(c), Text: text + "; " + retainedBy(c)}}
}

// timeLeft returns the end of the sentence with the time to the limit, or "" if that is unknown.
func timeLeft(left time.Duration) string {
	if left == 0 {
		return ""
	}
	return fmt.Sprintf(", in about %s at the current rate", terminal.Duration(left.Seconds()))
}

// retainedBy says why Postgres retains the WAL.
func retainedBy(c *State) string {
	s := c.Slot
	if behind := int64(c.WALEnd - s.ConfirmedFlushLSN); s.ConfirmedFlushLSN > c.WALEnd || behind < s.retained(c.WALEnd)/2 {
		return fmt.Sprintf("the confirmed position is %s; Postgres retains the WAL before it until the slot moves on, or for a long transaction: see pg_stat_activity and pg_prepared_xacts", s.ConfirmedFlushLSN)
	}
	return fmt.Sprintf("the confirmed position is %s: the relay still reads the WAL after it, or the broker does not acknowledge its rows, which status says", s.ConfirmedFlushLSN)
}
