package catalog

import (
	"fmt"
	"time"
)

// A danger is how near the server is to removing log that the slot needs.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
type danger int

const (
	calm       danger = iota
	extended          // more than max_wal_size is kept: the disk fills
	half              // less than half of what may be kept is left
	tenth             // less than a tenth
	unreserved        // the next checkpoint may remove it
)

// dangerOf also returns the share of what may be kept that is left; 1 where nothing limits
// it.
func dangerOf(c *State) (d danger, left float64) {
	s := c.Slot
	left = 1
	if s.SafeWALSize != nil {
		safe := float64(*s.SafeWALSize)
		left = max(0, safe) / max(1, safe+float64(s.Retained(c.WALEnd)))
	}
	switch {
	case s.WALStatus == "unreserved", left == 0:
		return unreserved, left
	case left < 0.1:
		return tenth, left
	case left < 0.5:
		return half, left
	case s.WALStatus == "extended":
		return extended, left
	}
	return calm, left
}

// retention follows the log that is kept for the slot.
type retention struct {
	warned danger   // the worst since it was calm
	looks  []sample // of the last minute, oldest first
}

type sample struct {
	at   time.Time
	safe int64
}

// rateWindow is over how long the rate is measured at which the rest is used up.
const rateWindow = time.Minute

// recovered is the share left from which on a later shortage is a new one.
const recovered = 0.6

// look notes a look at a slot that is there, and returns a warning when the danger is
// greater than what was warned of.
func (r *retention) look(c *State) []Warning {
	s := c.Slot
	if s == nil {
		return nil
	}
	r.sample(c)
	d, left := dangerOf(c)
	if d == calm && r.warned != calm && left > recovered {
		r.warned = calm
		return []Warning{{Object: slotObject(c), Over: true, Text: fmt.Sprintf("it holds %s of log, no more than it should", size(s.Retained(c.WALEnd)))}}
	}
	if d <= r.warned {
		return nil
	}
	r.warned = d
	text := fmt.Sprintf("it holds %s of log, from %s on", size(s.Retained(c.WALEnd)), s.RestartLSN)
	switch d {
	case unreserved:
		text += ": the next checkpoint may remove what it needs, and the slot is lost then"
	case tenth, half:
		text += fmt.Sprintf("; when %s more are written, the server may remove what it needs (max_slot_wal_keep_size is %s)%s",
			size(*s.SafeWALSize), size(c.MaxSlotWALKeepSize), r.timeLeft(*s.SafeWALSize))
	case extended:
		text += ", which is beyond max_wal_size"
		if s.SafeWALSize == nil {
			text += "; nothing limits it, and a full disk stops the server"
		}
	case calm:
	}
	return []Warning{{Object: slotObject(c), Text: text + "; " + holds(c)}}
}

func (r *retention) sample(c *State) {
	if c.Slot.SafeWALSize == nil {
		r.looks = nil
		return
	}
	for len(r.looks) > 1 && c.ReadAt.Sub(r.looks[1].at) >= rateWindow {
		r.looks = r.looks[1:]
	}
	r.looks = append(r.looks, sample{c.ReadAt, *c.Slot.SafeWALSize})
}

// timeLeft says how long safe lasts at the rate of the last minute.
func (r *retention) timeLeft(safe int64) string {
	first := r.looks[0]
	last := r.looks[len(r.looks)-1]
	used, took := first.safe-last.safe, last.at.Sub(first.at)
	if used <= 0 || took <= 0 {
		return ""
	}
	left := time.Duration(float64(safe) / float64(used) * float64(took))
	return fmt.Sprintf(", in about %s at the present rate", left.Round(max(time.Second, left/100)))
}

// holds says what keeps the log from being released.
func holds(c *State) string {
	s := c.Slot
	if behind := int64(c.WALEnd - s.ConfirmedFlushLSN); s.ConfirmedFlushLSN > c.WALEnd || behind < s.Retained(c.WALEnd)/2 {
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
