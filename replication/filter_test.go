package replication

import (
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

// Run drops the reserved prefix even if MessagePrefix is empty.
func TestReservedPrefixWithoutOwnMessages(t *testing.T) {
	f := Config{ReservedPrefix: "ours", Messages: []string{AnyPrefix}}.messageFilter()
	for prefix, want := range map[string]bool{"ours": true, "ours too": false, "": false} {
		data := append([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x10"+prefix), 0)
		if got := f.discards(data, len(data)); got != want {
			t.Errorf("prefix %q: discarded %t, want %t", prefix, got, want)
		}
	}
}
