package owner

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
)

// A fence decides whether this process may write, so that two relays do not write the records of one
// slot at the same time. The sink calls it before each request; nothing else decides this.
//
// The fence is open while a session holds the slot, Postgres was heard from recently, and the process
// was not suspended. Whatever closes the fence also ends the session. Only the next session, which
// checks who owns the slot, opens it again.
//
// The fence relies on clocks, and Postgres may release a slot at any moment. So it only limits the
// number of duplicates. The broker protects the order, by rejecting the Writer of an earlier owner.
type fence struct {
	session atomic.Pointer[guardedSession] // nil: closed
}

var errFenceClosed = errors.New("no session holds the slot")

// A guardedSession is the part of a session that the fence needs.
type guardedSession struct {
	source
	clock *clock
}

// open opens the fence for a session.
func (f *fence) open(s source, c *clock) { f.session.Store(&guardedSession{s, c}) }

// close closes the fence.
func (f *fence) close() { f.session.Store(nil) }

// checkOpen returns nil while the fence is open, and otherwise why it is closed. It does not block and may
// be called from any goroutine.
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
	// tickInterval is the time between two ticks of a clock. A tick comes with each status update, so
	// that an idle relay does not wake up only for it.
	tickInterval = time.Second

	// maxTickDelay is how late a tick may be, and how far the two clocks may drift apart between two ticks.
	maxTickDelay = time.Second
)

// A clock detects that the process was suspended: a tick comes late, or, if the whole machine and its
// monotonic clock were suspended, the time of day has jumped.
type clock struct {
	last      atomic.Pointer[time.Time] // time of the last tick, on both clocks
	suspended atomic.Bool               // detected once; stays true
}

func newClock() *clock {
	c := new(clock)
	c.last.Store(new(time.Now()))
	return c
}

// tick records that the process is running. It returns fault.ErrSuspended if the process was suspended since the
// last tick.
func (c *clock) tick(now time.Time) error {
	if err := c.check(now); err != nil {
		return err
	}
	c.last.Store(&now)
	return nil
}

// check returns fault.ErrSuspended if the next tick is late, and always after that.
func (c *clock) check(now time.Time) error {
	last := *c.last.Load()
	passed, shown := now.Sub(last), now.Round(0).Sub(last.Round(0))
	if passed > tickInterval+maxTickDelay || shown-passed > maxTickDelay || passed-shown > maxTickDelay {
		c.suspended.Store(true)
	}
	if c.suspended.Load() {
		return fmt.Errorf("%w for %s or more", fault.ErrSuspended, maxTickDelay)
	}
	return nil
}
