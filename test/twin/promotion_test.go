package twin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// After a promotion, with a lost tail or without, the slot is made on the new server. Neither the process
// that was there before nor another one goes on: rows may have come before the slot.
func TestSlotMadeAfterAPromotion(t *testing.T) {
	for seed := range uint64(16) {
		lost, restart := int(seed%2), seed%4 >= 2
		t.Run(fmt.Sprintf("seed %d, %d lost, restart %t", seed, lost, restart), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed)
				w.cfg.PositionTopic, w.history.kept = positions, true
				w.playPromotion(lost, restart)
				for _, v := range w.history.violations {
					t.Error(v)
				}
				if t.Failed() {
					t.Logf("history:\n%s", w.history)
				}
			})
		})
	}
}

// playPromotion has the last lost transactions be missing on the promoted server, where the slot is made.
func (w *world) playPromotion(lost int, restart bool) {
	w.postgres.start()
	r := w.newReplica()
	first := r.launch()
	for range 5 {
		w.postgres.commit(func(tx *transaction) { tx.rows = []*row{w.postgres.newRow(topics[0], "key-0", 500, false)} })
	}
	w.arrive(soon)
	if restart {
		first.cancel()
		<-first.ended
		close(first.told)
	}
	w.postgres.crash()
	w.postgres.promote(lost)
	w.postgres.makeSlot()
	w.postgres.start()
	if !restart {
		w.refuses(first, lost)
	}
	w.refuses(r.launch(), lost)
	w.end()
}

// refuses waits for the end of a run that finds the slot. The record may be behind the last transaction.
func (w *world) refuses(p *process, lost int) {
	select {
	case <-p.ended:
	case <-time.After(patience):
		w.history.violated("run %d goes on", p.host.run)
		p.cancel()
		<-p.ended
	}
	if relay.ExitCode(p.err) != relay.ExitContinuity || lost > 0 && !strings.Contains(p.err.Error(), "left timeline 1") {
		w.history.violated("run %d ends with: %v", p.host.run, p.err)
	}
	close(p.told)
}
