package replication

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// A lease is how long the server keeps a session, and with it the slot, for a client it does
// not hear from: wal_sender_timeout from the last status update on. A process that is stopped
// for longer, by a signal, a frozen container, a machine out of breath, does not notice until
// it goes on, and then another one may have the slot. The monotonic clock tells: it does not
// stand still meanwhile, unless the whole machine does.
//
// One goroutine begins, renews and settles it; lapsed may be called from any.
type lease struct {
	timeout time.Duration // 0: it has no end
	began   time.Time
	until   atomic.Int64 // nanoseconds from began on
}

// begin is called before anybody else has the lease.
func (l *lease) begin(now time.Time, timeout time.Duration) {
	l.timeout, l.began = timeout, now
	l.until.Store(math.MaxInt64)
	if timeout > 0 {
		l.until.Store(int64(timeout))
	}
}

// renew notes a status update that was sent at now. A lease that has lapsed stays so.
func (l *lease) renew(now time.Time) {
	if l.timeout > 0 && l.lapsed(now) == nil {
		l.until.Store(int64(now.Sub(l.began) + l.timeout))
	}
}

// settle notes the end of a session. One that ends in its time has nothing to fear: nobody
// can have had the slot yet.
func (l *lease) settle(now time.Time) {
	if l.lapsed(now) == nil {
		l.until.Store(math.MaxInt64)
	}
}

// lapsed returns an error if the lease has run out.
func (l *lease) lapsed(now time.Time) error {
	over := now.Sub(l.began) - time.Duration(l.until.Load())
	if over < 0 {
		return nil
	}
	return fmt.Errorf("%w: the process was stopped: nothing was reported for %s, and after wal_sender_timeout, which is %s, another one may have the slot",
		ErrUnreachable, (over + l.timeout).Round(time.Millisecond), l.timeout)
}

// Lapsed returns nil as long as the server keeps the slot for this session, as far as time
// can tell, and for good when Run has returned by then. Otherwise it returns an error of
// ErrUnreachable, from then on: what was read and not sent on yet may have been delivered by
// another process, and newer records too. It may be called from any goroutine after Start.
func (s *Stream) Lapsed() error { return s.lease.lapsed(time.Now()) }
