package replication

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"
)

// withoutTimeout stands for a wal_sender_timeout of 0.
const withoutTimeout = 30 * time.Second

// A contact is when the server was last known to hold the slot for a session: when something of it
// arrived, or somebody who looked at the catalog says so. Without that for half of wal_sender_timeout
// the session counts as lost, for good: the server gives up one that it has not heard for all of it,
// and then another process may have the slot. A process that is stopped does not notice until it goes
// on; the monotonic clock tells, which does not stand still meanwhile, unless the whole machine does.
//
// Its methods may be called from any goroutine after start.
type contact struct {
	timeout time.Duration // wal_sender_timeout; 0: the server waits for ever
	limit   time.Duration
	began   time.Time
	last    atomic.Int64 // nanoseconds from began on
	lost    atomic.Bool
}

// start is called before anybody else has the contact.
func (c *contact) start(now time.Time, timeout time.Duration) {
	c.began, c.timeout, c.limit = now, timeout, cmp.Or(timeout, withoutTimeout)/2
}

// heard notes that the session held the slot at a time. A session that counts as lost by then stays lost:
// what a process reads after it was stopped may have arrived long before.
func (c *contact) heard(at time.Time) {
	since := int64(at.Sub(c.began))
	for last := c.last.Load(); since > last; last = c.last.Load() {
		if time.Duration(since-last) >= c.limit {
			c.lost.Store(true)
		}
		if c.last.CompareAndSwap(last, since) {
			return
		}
	}
}

// check returns an error if the session counts as lost.
func (c *contact) check(now time.Time) error {
	silent := now.Sub(c.began) - time.Duration(c.last.Load())
	if silent < c.limit && !c.lost.Load() {
		return nil
	}
	c.lost.Store(true)
	silent = max(silent, c.limit).Round(time.Millisecond)
	if c.timeout == 0 {
		return fmt.Errorf("%w: nothing was heard for %s; wal_sender_timeout is 0, and the relay waits for %s: another process may have the slot by now",
			ErrUnreachable, silent, c.limit)
	}
	return fmt.Errorf("%w: nothing was heard for %s; half of wal_sender_timeout is %s, and after all of it another process may have the slot",
		ErrUnreachable, silent, c.limit)
}

// Expired returns nil as long as the server is known to keep the slot for this session. Otherwise it
// returns an error of ErrUnreachable, from then on: what was read and not sent on yet may have been
// delivered by another process, and newer records too. It may be called from any goroutine after
// Start.
func (s *Stream) Expired() error { return s.contact.check(time.Now()) }

// Heard notes that the catalog, asked at a time, has shown that the server process of this session
// (see [Stream.PID]) holds the slot. While Run does not read, nothing else shows it. It may be called
// from any goroutine after Start.
func (s *Stream) Heard(at time.Time) { s.contact.heard(at) }
