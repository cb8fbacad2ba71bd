package replication

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A lease lapses when nothing was reported for wal_sender_timeout, and then for good.
func TestLease(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var l lease
	expect := func(seconds int, lapsed bool) {
		t.Helper()
		if err := l.lapsed(at(seconds)); (err != nil) != lapsed || err != nil && !errors.Is(err, ErrUnreachable) {
			t.Errorf("after %d s: %v", seconds, err)
		}
	}
	l.begin(at(0), 60*time.Second)
	expect(59, false)
	expect(60, true)
	l.renew(at(30))
	expect(89, false)
	expect(90, true)
	l.renew(at(90)) // too late
	expect(91, true)
	l.settle(at(92))
	expect(93, true)

	l.begin(at(0), 60*time.Second)
	l.renew(at(20))
	l.settle(at(79))
	expect(10_000, false)

	l.begin(at(0), 0)
	l.renew(at(20))
	expect(10_000_000, false)
}

// A stream that was stopped for too long ends, without a report that would be none any more.
func TestStreamThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		time.Sleep(30 * time.Second)
		if err := s.stream.Lapsed(); err != nil {
			t.Fatalf("while it reports: %v", err)
		}
		s.stream.lease.until.Store(int64(time.Since(s.stream.lease.began))) // as if it had been stopped
		err := <-s.ended
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "wal_sender_timeout") {
			t.Errorf("Run: %v", err)
		}
		if s.stream.Lapsed() == nil {
			t.Error("the lease has come back")
		}
	})
}
