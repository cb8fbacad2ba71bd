package replication

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A session expires when nothing was reported for wal_sender_timeout, and then for good.
func TestExpiry(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var e expiry
	expect := func(seconds int, expired bool) {
		t.Helper()
		if err := e.passed(at(seconds)); (err != nil) != expired || err != nil && !errors.Is(err, ErrUnreachable) {
			t.Errorf("after %d s: %v", seconds, err)
		}
	}
	e.start(at(0), 60*time.Second)
	expect(59, false)
	expect(60, true)
	e.extend(at(30))
	expect(89, false)
	expect(90, true)
	e.extend(at(90)) // too late
	expect(91, true)
	e.end(at(92))
	expect(93, true)

	e.start(at(0), 60*time.Second)
	e.extend(at(20))
	e.end(at(79))
	expect(10_000, false)

	e.start(at(0), 0)
	e.extend(at(20))
	expect(10_000_000, false)
}

// A stream that was stopped for too long ends, without a report that would be none any more.
func TestStreamThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		time.Sleep(30 * time.Second)
		if err := s.stream.Expired(); err != nil {
			t.Fatalf("while it reports: %v", err)
		}
		s.stream.expiry.after.Store(int64(time.Since(s.stream.expiry.began))) // as if it had been stopped
		err := <-s.ended
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "wal_sender_timeout") {
			t.Errorf("Run: %v", err)
		}
		if s.stream.Expired() == nil {
			t.Error("the session has come back")
		}
	})
}
