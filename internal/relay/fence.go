package relay

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A fence decides whether this process may write, so that two relays do not write the records of one
// slot side by side. It is the only such decision: the sink asks it before each request.
//
// It is open while a session holds the slot, has heard from Postgres lately, and the process has not
// stood still. What closes it ends the session, and only the next one, which has looked who owns the
// slot, opens it again.
//
// It goes by clocks, and Postgres may free a slot at any moment. So it bounds duplicates; order is
// guarded by the broker, which refuses a writer of a lower claim.
type fence struct {
	session atomic.Pointer[guardedSession] // nil: closed
}

var errFenceClosed = errors.New("no session holds the slot")

// A guardedSession is what the fence must know of a session.
type guardedSession struct {
	source
	clock *clock
}

// open opens the fence for a session.
func (f *fence) open(s source, c *clock) { f.session.Store(&guardedSession{s, c}) }

// close closes it.
func (f *fence) close() { f.session.Store(nil) }

// checkOpen returns nil while the fence is open, otherwise why it has closed. It does not block and
// may be called from any goroutine.
func (f *fence) checkOpen() error {
	s := f.session.Load()
	if s == nil {
		return errFenceClosed
	}
	if err := s.clock.check(time.Now()); err != nil {
		return err
	}
	return s.Expired()
}

const (
	// tickInterval is how often a clock shows that the process runs: with each status update, so that an
	// idle relay does not wake up for it.
	tickInterval = time.Second

	// standstill is how late a tick may be, and how far two clocks may drift apart between two ticks.
	standstill = time.Second
)

// errStoodStill: the process, or the whole machine, was stopped. Another relay may have had the slot.
var errStoodStill = errors.New("the process stood still")

// A clock notices that the process has stood still: its ticks come late, or, if the machine was
// suspended and the monotonic clock with it, the time of day has jumped.
type clock struct {
	last    atomic.Pointer[time.Time] // the newest tick, with both clocks
	stopped atomic.Bool               // noticed once
}

func newClock() *clock {
	c := new(clock)
	c.last.Store(new(time.Now()))
	return c
}

// tick notes that the process runs, and returns errStoodStill if it has not done so since the last
// tick.
func (c *clock) tick(now time.Time) error {
	if err := c.check(now); err != nil {
		return err
	}
	c.last.Store(&now)
	return nil
}

// check returns errStoodStill if the next tick is late, from then on.
func (c *clock) check(now time.Time) error {
	last := *c.last.Load()
	passed, shown := now.Sub(last), now.Round(0).Sub(last.Round(0))
	if passed > tickInterval+standstill || shown-passed > standstill || passed-shown > standstill {
		c.stopped.Store(true)
	}
	if c.stopped.Load() {
		return fmt.Errorf("%w for %s or more", errStoodStill, standstill)
	}
	return nil
}
