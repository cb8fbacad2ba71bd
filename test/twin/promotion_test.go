package twin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
)

// After a promotion, with or without lost transactions, the slot is created on the new server. Neither the
// running relay nor a restarted one continues, because rows may have been committed before the slot was
// created.
func TestSlotMadeAfterAPromotion(t *testing.T) {
	for seed := range uint64(16) {
		lost, restart := int(seed%2), seed%4 >= 2
		t.Run(fmt.Sprintf("seed %d, %d lost, restart %t", seed, lost, restart), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed)
				w.cfg.Positions, w.history.kept, w.cfg.RefillOnLoss = position.Place{Topic: positions}, true, false
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

// playPromotion promotes a server that lacks the last lost transactions, and creates the slot on it.
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

// refuses waits until a run has detected the new slot and stopped, and checks its error. If transactions
// were lost, the position record may be ahead of the new timeline's beginning.
func (w *world) refuses(p *process, lost int) {
	select {
	case <-p.ended:
	case <-time.After(patience):
		w.history.violated("run %d goes on", p.host.run)
		p.cancel()
		<-p.ended
	}
	if fault.ExitCode(p.err) != exit.Continuity || lost > 0 && !strings.Contains(p.err.Error(), "left timeline 1") {
		w.history.violated("run %d ends with: %v", p.host.run, p.err)
	}
	close(p.told)
}
