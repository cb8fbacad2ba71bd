package replication

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// Any role can write messages with the relay's own prefix. Run drops those that the relay cannot have written:
// messages that are too large or not transactional. They do not end the stream, and use no memory.
func TestMessagesUnderOwnPrefix(t *testing.T) {
	outside := func(message []byte) []byte {
		message[headerSize+walHeaderSize+1] = 0
		return message
	}
	for name, tc := range map[string]struct {
		message []byte
		handed  bool
	}{
		"small":                            {logical(0x11, "ours", "x"), true},
		"as large as may be":               {logical(0x11, "ours", strings.Repeat("x", MaxOwnMessage-len("ours")-15)), true},
		"one byte larger":                  {logical(0x11, "ours", strings.Repeat("x", MaxOwnMessage-len("ours")-14)), false},
		"larger than a row may be":         {logical(0x11, "ours", strings.Repeat("x", 6*arenaSize)), false},
		"outside a transaction":            {outside(logical(0x11, "ours", "x")), false},
		"large, outside a transaction":     {outside(logical(0x11, "ours", strings.Repeat("x", 6*arenaSize))), false},
		"of a row, outside a transaction":  {outside(logical(0x11, "ours, or so", "x")), true},
		"of a row, larger than a snapshot": {logical(0x11, "", strings.Repeat("x", 2*MaxOwnMessage)), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.cfg.MessagePrefix, s.cfg.ReservedPrefix = "ours", "ours"
				s.cfg.Messages, s.cfg.MaxMessageBytes = []string{AnyPrefix}, 5*arenaSize
				s.open(0).run()
				go func() {
					s.server.send(beginMessage())
					for m := tc.message; len(m) > 0; bubble.Sleep(time.Millisecond) {
						n := min(len(m), 100_000)
						s.server.send(m[:n])
						m = m[n:]
					}
					s.server.send(append(walData(0x13, "I2"), commit(0x20, 0x28)...))
				}()
				want := []string{"0/20 B", "0/13 I", "0/20 C"}
				if tc.handed {
					want = []string{"0/20 B", "0/11 M", "0/13 I", "0/20 C"}
				}
				if diff := cmp.Diff(want, s.kinds(len(want))); diff != "" {
					t.Errorf("received messages (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Run logs the first message of a session whose prefix is not configured, but no message of a relay.
func TestForeignPrefixIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.MessagePrefix, s.cfg.ReservedPrefix, s.cfg.Messages = "ours", "ours", []string{"orders"}
		s.open(0)
		var log bytes.Buffer
		s.stream.log = slog.New(slog.NewTextHandler(&log, nil))
		s.run()
		go func() {
			s.server.send(beginMessage())
			for _, prefix := range []string{"ours", "order", "orders", "other", strings.Repeat("o", 6*arenaSize)} {
				s.server.send(logical(0x11, prefix, "x"))
			}
			s.server.send(commit(0x20, 0x28))
		}()
		want := []string{"0/20 B", "0/11 M", "0/11 M", "0/20 C"}
		if diff := cmp.Diff(want, s.kinds(len(want))); diff != "" {
			t.Errorf("received messages (-want +got):\n%s", diff)
		}
		s.cancel(nil)
		synctest.Wait()
		if n := strings.Count(log.String(), "skipping"); n != 1 || !strings.Contains(log.String(), "first=order\n") {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

// Run drops the reserved prefix even if MessagePrefix is empty.
func TestReservedPrefixWithoutOwnMessages(t *testing.T) {
	f := Config{ReservedPrefix: "ours", Messages: []string{AnyPrefix}}.messageFilter()
	for prefix, want := range map[string]bool{"ours": true, "ours too": false, "": false} {
		data := append([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x10"+prefix), 0)
		if got, foreign := f.discards(data, len(data)); got != want || foreign {
			t.Errorf("prefix %q: discarded %t, foreign %t, want %t", prefix, got, foreign, want)
		}
	}
}
