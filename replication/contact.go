package replication

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// withoutTimeout is used in place of wal_sender_timeout if that is 0.
const withoutTimeout = 30 * time.Second

// A contact is the last time at which the session was known to hold the slot: data arrived, or the
// catalog showed it. If that was half of wal_sender_timeout ago, the session is lost, and stays lost.
// Postgres ends a session from which it has heard nothing for all of wal_sender_timeout, and then
// another process may acquire the slot. A stopped process (SIGSTOP, a frozen container) detects this
// when it continues, because the monotonic clock goes on unless the whole machine is suspended.
//
// Its methods may be called from any goroutine after start.
type contact struct {
	timeout time.Duration // wal_sender_timeout; 0: off
	limit   time.Duration
	began   time.Time
	last    atomic.Int64 // nanoseconds from began on
	lost    atomic.Bool
}

// start must be called before any other method.
func (c *contact) start(now time.Time, timeout time.Duration) {
	c.began, c.timeout, c.limit = now, timeout, cmp.Or(timeout, withoutTimeout)/2
}

// heard records that the session held the slot at the given time. A lost session stays lost: data that a
// process reads after it was stopped may have arrived long before.
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

// check returns an error if the session is lost.
func (c *contact) check(now time.Time) error {
	silent := now.Sub(c.began) - time.Duration(c.last.Load())
	if silent < c.limit && !c.lost.Load() {
		return nil
	}
	c.lost.Store(true)
	silent = max(silent, c.limit).Round(time.Millisecond)
	if c.timeout == 0 {
		return fmt.Errorf("%w: the server sent nothing for %s, and the limit is %s because wal_sender_timeout is 0; another process may have the slot",
			ErrUnreachable, silent, c.limit)
	}
	return fmt.Errorf("%w: the server sent nothing for %s, and the limit is %s, half of wal_sender_timeout; another process may soon have the slot",
		ErrUnreachable, silent, c.limit)
}

// Reported returns the position that this session has confirmed to Postgres last, or 0. It may be called from any goroutine after
// Start.
func (s *Stream) Reported() pglogrepl.LSN { return s.reporter.reported() }

// Expired returns nil while the session is known to hold the slot. After that it always returns an
// error that wraps ErrUnreachable: another process may already have delivered the rows that this
// session has read, and newer ones. Expired may be called from any goroutine after Start.
func (s *Stream) Expired() error { return s.contact.check(time.Now()) }

// Heard records that the catalog, queried at the given time, showed that the WAL sender of this session
// (see [Stream.PID]) holds the slot. While Run does not read, nothing else shows that. Heard may be
// called from any goroutine after Start.
func (s *Stream) Heard(at time.Time) { s.contact.heard(at) }
