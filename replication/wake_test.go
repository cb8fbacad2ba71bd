package replication

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// loopback returns a session over TCP.
func loopback(t *testing.T) *session {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	remote, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t)
	s.server = newServer(t, remote)
	s.cfg = testConfig(t, func() (net.Conn, error) { return client, nil })
	return s
}

// A few bytes need not wake the reader. An event must wake it immediately, however the network splits its
// transaction. In this test, data that does not wake the reader is read only after half an hour, with the next status
// update.
func TestEveryEventWakes(t *testing.T) {
	begin := walData(0x10, "B"+strings.Repeat("b", 20))
	small := walData(0x10, "I"+strings.Repeat("i", 31)) // one byte in each of four columns
	large := walData(0x10, "I"+strings.Repeat("i", 200))
	end := commit(0x10, 0x18)
	for name, pieces := range map[string][][]byte{
		"at once":            {slices.Concat(begin, small, end)},
		"message by message": {begin, small, end},
		"commit later":       {slices.Concat(begin, large), end},
		"small row later":    {slices.Concat(begin, large), small, end},
		"within begin":       {begin[:7], slices.Concat(begin[7:], small, end)},
		"within commit":      {slices.Concat(begin, large, end[:20]), end[20:]},
	} {
		t.Run(name, func(t *testing.T) {
			s := loopback(t)
			s.cfg.StatusInterval = time.Hour
			s.server.settings[senderTimeout] = fmt.Sprint(2 * time.Hour.Milliseconds())
			s.open(0).run()
			committed := make(chan struct{})
			go func() {
				defer close(committed)
				for !slices.ContainsFunc(s.receive(), func(m string) bool { return strings.HasPrefix(m, "0/10 C") }) {
				}
			}()
			for _, piece := range pieces {
				s.server.send(piece)
				<-time.After(20 * time.Millisecond) // so that the reader processes it separately, unless the machine is busy
			}
			wait.Receive(t, "the commit, or else the next status update", committed)
		})
	}
}

// At a high rate, less data than wakes the reader may arrive while it waits. The reader then reads that data, and
// stays in the busy state.
func TestBusyReaderTakesWhatIsThere(t *testing.T) {
	need.FullRun(t, "it depends on a quarter of a millisecond")
	s := loopback(t)
	s.open(0)
	defer func() {
		s.stream.wire.conn.Close()
		<-s.server.gone
	}()
	r := &run{
		Stream: s.stream, confirmed: func() pglogrepl.LSN { return 0 }, interval: time.Minute,
		timer: time.NewTimer(time.Hour),
	}
	if err := r.nextBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.reporter.sent = time.Now() // no status update is due
	message := walData(0x10, "B"+strings.Repeat("b", 20))
	judged := 0
	for range 1000 {
		r.pacer.busy = true
		sent := make(chan time.Time, 1)
		before := r.wire.w
		began := time.Now()
		go func() {
			for end := began.Add(busyPause / 4); time.Now().Before(end); { // timers are not precise enough
			}
			s.server.send(message)
			sent <- time.Now()
		}()
		if err := r.receive(t.Context(), began); err != nil {
			t.Fatal(err)
		}
		if (<-sent).Sub(began) > busyPause*3/4 {
			r.pacer.busy = false // the data came too late
			for r.wire.w == before {
				if err := r.receive(t.Context(), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
		} else if judged++; !r.pacer.busy || r.wire.w == before {
			t.Fatalf("busy %t, %d bytes were read", r.pacer.busy, r.wire.w-before)
		}
		r.wire.r, r.wire.w = 0, 0 // as if the data had been parsed
		if judged == 20 {
			return
		}
	}
	t.Fatal("this machine is too slow to judge")
}
