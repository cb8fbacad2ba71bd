package replication

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// loopback is a newSession over TCP.
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

// A little need not wake the reader, but an event does at once, however the network cuts its
// transaction. What is found only when a status update is due comes after a minute here.
func TestEveryEventWakes(t *testing.T) {
	begin := walData(0x10, "B"+strings.Repeat("b", 20))
	small := walData(0x10, "I"+strings.Repeat("i", 31)) // a byte in each of four columns
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
			s.cfg.StatusInterval = time.Minute
			s.open(0).run()
			committed := make(chan struct{})
			go func() {
				defer close(committed)
				for !slices.ContainsFunc(s.receive(), func(m string) bool { return strings.HasPrefix(m, "0/10 C") }) {
				}
			}()
			for _, piece := range pieces {
				s.server.send(piece)
				time.Sleep(20 * time.Millisecond) // it is read, or left, by itself
			}
			select {
			case <-committed:
			case <-time.After(10 * time.Second):
				t.Fatal("the commit waits for the next status update")
			}
		})
	}
}
