package owner

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// A recursive parser would crash on a deeply nested message. The relay sends such a message unchanged to the
// dead-letter topic, and delivers the following ones.
func TestPumpDeadLettersDeepMessages(t *testing.T) {
	for name, content := range map[string]string{
		"brackets": strings.Repeat("[", 32<<20),
		"objects":  strings.Repeat(`{"":`, 8<<20),
		"in a row": `{"id":"1","aggregatetype":"order","aggregateid":"a","type":"T","payload":` + strings.Repeat("[", 32<<20) + strings.Repeat("]", 32<<20) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := append([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x50"), "rows\x00"...)
				deep := append(binary.BigEndian.AppendUint32(b, uint32(len(content))), content...)
				src := &streamtest.Source{Err: streamtest.ErrLost, Script: streamtest.Script{
					streamtest.Begin(100), streamtest.WALData(deep), logicalMessage("rows", 90, 1, 2), streamtest.Commit(100, 110),
				}}
				prod := newScriptedProducer()
				cfg := settings{messages: []string{"rows"}, deadLetterTopic: "dead", slot: "s"}
				s, _ := newTestSessionWith(t, cfg, src, prod, 0)
				if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
					t.Fatalf("session ended with %v", err)
				}
				if want := []string{"/" + content, "a/2"}; len(prod.sent) != 2 || prod.sent[0] != want[0] || prod.sent[1] != want[1] {
					t.Errorf("sent %.300q", prod.sent)
				}
				if got := s.tracker.Confirmed(); got != 110 {
					t.Errorf("confirmed %s", got)
				}
			})
		})
	}
}
