package twin

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
)

// playLoss plays a world in which relays refill the gap of a lost slot, without other faults.
func playLoss(t *testing.T, name string, play func(w *world)) {
	t.Helper()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed)
				w.cfg.Positions, w.history.kept, w.cfg.RefillOnLoss = position.Place{Topic: positions}, true, true
				w.parkKeys(false)
				w.postgres.start()
				w.launch()
				w.commitRows()
				w.arrive(soon)
				time.Sleep(5 * time.Second) // until the record has a snapshot
				play(w)
				w.commitRow(topics[0])
				w.arrive(soon)
				w.rest()
				w.end()
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

// The new slot is lost before the first session of a refill has started. The relay refills again.
func TestSlotIsLostBeforeTheRefillStarts(t *testing.T) {
	again := func(w *world) {
		w.postgres.created = sync.OnceFunc(w.postgres.loseSlot)
		w.postgres.loseSlot()
		w.commitRows()
	}
	playLoss(t, "while it runs", again)
	playLoss(t, "at the start", func(w *world) {
		w.rest()
		again(w)
		w.launch()
	})
}

// Relays that find the slot lost do not end while Postgres waits for an open transaction before it creates the slot. One of them
// refills when the transaction has ended, the others wait.
func TestRelaysWaitForTheRefillOfAnother(t *testing.T) {
	wait := func(w *world) {
		commit := w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		w.postgres.loseSlot()
		w.commitRows()
		w.launch()
		time.Sleep(5 * time.Minute)
		commit()
	}
	ends := func(w *world, runs int64) {
		w.arrive(soon)
		if n := w.runs.Load(); n > runs {
			w.history.violated("%d runs, %d were started", n, runs)
		}
		if !strings.Contains(w.history.String(), `application \"slow\"`) {
			w.history.violated("the log does not name the transaction")
		}
	}
	playLoss(t, "while one runs", func(w *world) {
		wait(w)
		ends(w, 2)
	})
	playLoss(t, "at the start", func(w *world) {
		w.rest()
		w.launch()
		wait(w)
		ends(w, 3)
	})
}

// The machine of a relay fails while it waits, and Postgres gets no answer from there. Another relay refills.
func TestRelayVanishesBeforeTheRefill(t *testing.T) {
	playLoss(t, "vanishes", func(w *world) {
		commit := w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		w.postgres.loseSlot()
		w.commitRows()
		time.Sleep(time.Second)
		w.replicas[0].host().block(block{to: everywhere, in: true, out: true, until: time.Now().Add(time.Hour)})
		w.replicas[0].orders <- kill
		w.launch()
		time.Sleep(10 * time.Second)
		commit()
		w.arrive(time.Minute)
	})
}

// The connection that has the snapshot of the new slot is lost in silence, while the relay waits for Kafka before it uses it.
func TestCopyIsLostBeforeTheRefillStarts(t *testing.T) {
	playLoss(t, "lost", func(w *world) {
		w.postgres.created = func() {
			w.replicas[0].host().block(block{to: isBroker, in: true, out: true, until: time.Now().Add(8 * time.Second)})
			time.AfterFunc(time.Second, func() { w.postgres.each((*client).lose) })
		}
		w.postgres.loseSlot()
		w.commitRows()
		w.arrive(time.Minute)
		w.postgres.created = nil
	})
}

// The connections to Postgres are lost in silence while the relay reads the tables, for which it has no time limit.
func TestConnectionsAreLostWhileRowsAreCounted(t *testing.T) {
	playLoss(t, "lost", func(w *world) {
		w.postgres.counted = sync.OnceFunc(func() { w.postgres.each((*client).lose) })
		w.postgres.loseSlot()
		w.commitRows()
		w.arrive(time.Minute)
	})
}

// The connections to Postgres are lost in silence while the slot is created, for which there is no time limit.
func TestConnectionsAreLostWhileTheSlotIsCreated(t *testing.T) {
	playLoss(t, "lost", func(w *world) {
		commit := w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		w.postgres.loseSlot()
		w.commitRows()
		time.Sleep(time.Second)
		w.postgres.each((*client).lose)
		commit()
		w.arrive(30 * time.Second)
	})
}

// The same, and something between relay and server keeps the server's connections alive: the relay ends its own old sessions.
func TestSessionsOfASetupOutliveTheirConnections(t *testing.T) {
	playLoss(t, "outlived", func(w *world) {
		commit := w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		w.postgres.loseSlot()
		w.commitRows()
		time.Sleep(time.Second)
		w.postgres.each(func(c *client) {
			c.kept = true
			c.conn.in.freeze(time.Hour)
			c.lose()
		})
		commit()
		w.arrive(40 * time.Second)
	})
}

// A relay that continues a refill waits for an open transaction. If it is stopped meanwhile, it ends at once.
func TestRelayIsStoppedWhileItWaits(t *testing.T) {
	playLoss(t, "stopped", func(w *world) {
		commit := func() {}
		w.postgres.created = sync.OnceFunc(func() {
			w.replicas[0].host().block(block{to: isBroker, in: true, out: true, until: time.Now().Add(8 * time.Second)})
			time.AfterFunc(time.Second, func() { w.postgres.each((*client).lose) }) // the snapshot of the slot is lost, too
			commit = w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		})
		w.postgres.loseSlot()
		w.commitRows()
		time.Sleep(45 * time.Second)
		began := time.Now()
		w.replicas[0].quit()
		if took := time.Since(began); took > 6*time.Second {
			w.history.violated("the relay took %s to end", took)
		}
		w.operating.Wait()
		w.replicas = nil
		commit()
		w.launch()
	})
}
