package relay

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/replication"
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
				src := &scriptedSource{err: errLost, script: script{
					beginMessage(100), walData(deep), logicalMessage("rows", 90, 1, 2), commitMessage(100, 110),
				}}
				prod := newScriptedProducer()
				cfg := Config{Messages: []string{"rows"}, DeadLetterTopic: "dead", Source: replication.Config{Slot: "s"}}
				s, _ := newTestSessionWith(t, cfg, src, prod, 0)
				if err := s.run(t.Context()); !errors.Is(err, errLost) {
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
