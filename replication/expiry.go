package replication

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// An expiry is when the server gives a session up, and with it the slot: wal_sender_timeout after
// the last status update. A process that is stopped for longer, by a signal, a frozen container, a
// machine out of breath, does not notice until it goes on, and then another one may have the slot.
// The monotonic clock tells: it does not stand still meanwhile, unless the whole machine does.
//
// One goroutine calls begin, extend and end; passed may be called from any.
type expiry struct {
	timeout time.Duration // 0: never
	began   time.Time
	after   atomic.Int64 // nanoseconds from began on
}

// start is called before anybody else has the expiry.
func (e *expiry) start(now time.Time, timeout time.Duration) {
	e.timeout, e.began = timeout, now
	e.after.Store(math.MaxInt64)
	if timeout > 0 {
		e.after.Store(int64(timeout))
	}
}

// extend notes a status update that was sent at now. An expiry that has passed stays so.
func (e *expiry) extend(now time.Time) {
	if e.timeout > 0 && e.passed(now) == nil {
		e.after.Store(int64(now.Sub(e.began) + e.timeout))
	}
}

// end notes the end of a session. One that ends in its time has nothing to fear: nobody can have
// had the slot yet.
func (e *expiry) end(now time.Time) {
	if e.passed(now) == nil {
		e.after.Store(math.MaxInt64)
	}
}

// passed returns an error if the session has expired.
func (e *expiry) passed(now time.Time) error {
	over := now.Sub(e.began) - time.Duration(e.after.Load())
	if over < 0 {
		return nil
	}
	return fmt.Errorf("%w: the process was stopped: nothing was reported for %s, and after wal_sender_timeout, which is %s, another one may have the slot",
		ErrUnreachable, (over + e.timeout).Round(time.Millisecond), e.timeout)
}

// Expired returns nil as long as the server keeps the slot for this session, as far as time can
// tell, and for good if Run has returned by then. Otherwise it returns an error of ErrUnreachable,
// from then on: what was read and not sent on yet may have been delivered by another process, and
// newer records too. It may be called from any goroutine after Start.
func (s *Stream) Expired() error { return s.expiry.passed(time.Now()) }
