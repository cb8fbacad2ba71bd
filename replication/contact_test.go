package replication

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// If nothing is heard from the server for the limit, the session is lost, and stays lost.
func TestContact(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var c *contact
	start := func() {
		c = new(contact)
		c.start(began, 60*time.Second)
	}
	expect := func(seconds int, lost bool) {
		t.Helper()
		err := c.check(at(seconds))
		if (err != nil) != lost || lost && (!errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "wal_sender_timeout")) {
			t.Errorf("after %d s: %v", seconds, err)
		}
	}
	start()
	expect(29, false)
	c.heard(at(20))
	c.heard(at(10)) // older than the last call
	expect(49, false)
	expect(50, true)
	expect(40, true)
	c.heard(at(51))
	expect(52, true)

	// The session stays lost even if nobody calls check in between.
	start()
	c.heard(at(29))
	c.heard(at(59))
	expect(60, true)
}

// If wal_sender_timeout is off, the error does not mention half of it. Data that arrives too late does not shorten
// the time in the error.
func TestContactTextNamesNoTimeoutThatIsOff(t *testing.T) {
	began := time.Now()
	for timeout, want := range map[time.Duration]string{
		0:                "the server sent nothing for 15s, and the limit is 15s because wal_sender_timeout is 0",
		60 * time.Second: "the server sent nothing for 30s, and the limit is 30s, half of wal_sender_timeout",
	} {
		c := new(contact)
		c.start(began, timeout)
		c.heard(began.Add(c.limit))
		if err := c.check(began.Add(c.limit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", timeout, err, want)
		}
	}
}

// The stream requests a reply from a silent server. After half of wal_sender_timeout without a reply, the session
// is lost. The client's own status updates do not prevent that, and data that arrives later does not change it.
func TestSilentServerIsLost(t *testing.T) {
	for timeout, limit := range map[string]time.Duration{"60000": 30 * time.Second, "3000": 1500 * time.Millisecond, "0": 15 * time.Second} {
		t.Run(timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.server.settings[senderTimeout] = timeout
				s.open(0).run()
				defer s.drain()()
				bubble.Sleep(limit - time.Millisecond)
				synctest.Wait()
				if err := s.stream.Expired(); err != nil {
					t.Errorf("before the limit: %v", err)
				}
				reports := s.server.reports()
				if last := reports[len(reports)-1]; !last.asked || last.at < limit/2 {
					t.Errorf("the last of %d status updates is %+v", len(reports), last)
				}
				bubble.Sleep(time.Millisecond)
				if err := s.stream.Expired(); !errors.Is(err, ErrUnreachable) {
					t.Errorf("at the limit: %v", err)
				}
				s.server.send(keepalive(0x10, false))
				synctest.Wait()
				if s.stream.Expired() == nil {
					t.Error("the session is no longer lost")
				}
				s.cancel(nil)
				<-s.ended
			})
		})
	}
}

// The stream requests a reply so early that a slow reply arrives in time, for any status interval, and whenever the
// server last sent something.
func TestServerThatAnswersIsKept(t *testing.T) {
	for timeout, interval := range map[string]time.Duration{"60000": time.Minute, "3000": time.Second, "1000": time.Second, "0": time.Hour} {
		t.Run(timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.server.settings[senderTimeout] = timeout
				s.cfg.StatusInterval = interval
				s.open(0).run()
				defer s.drain()()
				limit := s.stream.contact.limit
				for i := range 40 {
					<-s.server.statuses
					bubble.Sleep(limit / 40 * time.Duration(i))
					s.server.send(keepalive(0x10, false))
					for r := range s.server.statuses {
						if r.asked {
							break
						}
					}
					bubble.Sleep(limit / 4)
					if err := s.stream.Expired(); err != nil {
						t.Fatal(err)
					}
					s.server.send(keepalive(0x10, false))
				}
				s.cancel(nil)
				<-s.ended
			})
		})
	}
}

// While the stream does not read, only the catalog shows that the session still holds the slot. That counts from
// the time of the query.
func TestCatalogKeepsTheContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		s.server.send(walData(1, "I")) // the test does not receive it
		for range 60 {
			asked := time.Now()
			bubble.Sleep(9 * time.Second) // the duration of the query
			s.stream.Heard(asked)
			bubble.Sleep(11 * time.Second)
			if err := s.stream.Expired(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for _, r := range s.server.reports() {
			if r.asked {
				t.Error("the stream requests a reply that it does not read")
			}
		}
		bubble.Sleep(10 * time.Second)
		if s.stream.Expired() == nil {
			t.Error("the session is not lost, although the catalog was not read again")
		}
		s.stream.Heard(time.Now())
		if s.stream.Expired() == nil {
			t.Error("the session is no longer lost")
		}
	})
}

// After a suspension, a process reads data that arrived before it. That data does not prove that the session is
// alive: the server may have ended it since.
func TestBufferedDataIsNoContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		go s.server.send(walData(1, "I"), walData(2, "I"))
		bubble.Sleep(31 * time.Second)
		for range 2 { // as if the process was suspended: no call of Expired
			s.receive()
		}
		if s.stream.Expired() == nil {
			t.Error("the session is not lost because of data that arrived long ago")
		}
	})
}

// The stream confirms a position of an earlier session or another process only after it has read up to that
// position itself. The server may still decode earlier WAL, and removes WAL before the confirmed position.
func TestReportsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0x10).run()
		s.confirmed.Store(0x40)
		for _, read := range []struct {
			message []byte
			report  pglogrepl.LSN
		}{{nil, 0}, {keepalive(0x08, false), 0x08}, {commit(0x20, 0x28), 0x28}, {keepalive(0x50, false), 0x40}} {
			if read.message != nil {
				go s.server.send(read.message)
				s.receive()
			}
			bubble.Sleep(2 * time.Second)
			synctest.Wait()
			reports := s.server.reports()
			if last := reports[len(reports)-1].lsn; last != read.report || s.stream.Reported() != read.report {
				t.Errorf("reported %s, Reported() is %s; want %s", last, s.stream.Reported(), read.report)
			}
		}
	})
}

// Close confirms a position only if the session has read up to it.
func TestCloseReportsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0x10).run()
		go s.server.send(keepalive(0x30, false))
		s.receive()
		synctest.Wait()
		s.cancel(nil)
		<-s.ended
		s.server.reports()
		if err := s.stream.Close(t.Context(), 0x40); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-s.server.gone
		if got := s.server.reports(); len(got) != 1 || got[0].lsn != 0x30 || s.stream.Reported() != 0x30 {
			t.Errorf("reported %v, Reported() is %s", got, s.stream.Reported())
		}
	})
}
