package soak

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// A relay that refills keeps its guarantees even if its slot is dropped under load, again and again, beside
// all other faults: nothing is lost, the order is kept, and the duplicates are rows of the last seconds before
// the loss. OUTBOX_TEST_SLOT_LOSSES is the number of strikes.
func TestSoakSlotLoss(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	soakSlotLosses(t, 1, DefaultWeights(), WithoutBroker(DefaultWeights()))
}

// The same with two relays, of which one refills and the other waits, or takes over the refill.
func TestSoakSlotLossTwoRelays(t *testing.T) {
	need.FullRun(t, "each takeover takes seconds")
	soakSlotLosses(t, 2, TakeoverWeights(), nil)
}

func soakSlotLosses(t *testing.T, relays int, weights, short map[Attack]int) {
	t.Helper()
	cfg := soakConfig{relays: relays, refill: true}
	if relays == 1 {
		cfg.sender = 3 * SenderTimeout // on a busy machine a shorter one interrupts refills, and no other relay takes over
	}
	if !need.Full() {
		cfg.fake, weights = func(*kafkatest.FakeCluster) {}, short
	}
	s := newSoak(t, cfg)
	s.run(t, rig.EnvInt(t, "OUTBOX_TEST_SLOT_LOSSES", 6), WithSlotLosses(weights))
	s.report(t)
	s.complain(t)
}

// refillMutations are bugs of a refill. missing are what the oracle finds if rows are left out.
func refillMutations(missing []delivery.Kind) map[string]mutation {
	const delivered = "NOT pg_catalog.pg_visible_in_snapshot(xid, "
	breaks := map[Attack]int{SlotDrop: 1}
	return map[string]mutation{
		"refills all rows but one in fifty": {
			tamper: refilling(" ORDER BY position", " AND position % 50 > 0 ORDER BY position"),
			refill: true, breaks: breaks, want: missing,
		},
		"refills what is not visible in the newest snapshot": {
			tamper: refilling(delivered, delivered+"pg_current_snapshot()) AND "+delivered),
			refill: true, breaks: breaks, want: missing,
		},
		"refills in another order": {
			tamper: refilling(" ORDER BY position", " ORDER BY id"),
			refill: true, breaks: breaks, want: []delivery.Kind{delivery.OutOfOrder, delivery.Gap, BrokenRun},
		},
		"refills all rows": {
			tamper: refilling(delivered, "TRUE OR "+delivered),
			refill: true, breaks: breaks, want: []delivery.Kind{delivery.Duplicate},
		},
	}
}

// refilling changes the query that reads the rows of a refill.
func refilling(from, to string) func(*wireState) walproxy.Tamper {
	return func(*wireState) walproxy.Tamper {
		return walproxy.Tamper{FromRelay: func(kind byte, body []byte, pass func([]byte)) {
			if kind == 'Q' && bytes.Contains(body, []byte("pg_visible_in_snapshot")) {
				body = bytes.Replace(body, []byte(from), []byte(to), 1)
			}
			pass(body)
		}}
	}
}

// awaitSnapshot waits for the first snapshot, without which a slot cannot be lost and refilled.
func (s *soak) awaitSnapshot(t *testing.T) {
	t.Helper()
	wait.For(t, "a snapshot in the position record", func() bool {
		p := rig.Recorded(t, s.kafka, soakSlot)
		return p != nil && len(p.Snapshots) > 0
	})
	s.delivered.disturb(time.Now(), false)
	s.delivered.recovered(time.Now())
}

// dropSlot drops the slot and runs another statement in the same query. Alone, there is a server to ask. An
// attempt to create the slot may fail because the relay was faster.
func (s *soak) dropSlot(ctx context.Context, then string, alone bool) error {
	s.confirms.SlotLost()
	err := s.ask(ctx, func(conn *pgx.Conn) error {
		if err := execute(ctx, conn, rig.DropSlot(soakSlot)); err != nil || then == "" {
			return err
		}
		_ = execute(ctx, conn, then)
		return nil
	})
	if !alone {
		return nil
	}
	return err
}

// delivered has the number of rows that were delivered at each moment, which says how many of them a refill
// may send again: those of the last seconds before the slot was lost. A relay that was disturbed may have no
// newer snapshot than before.
type delivered struct {
	mu       sync.Mutex
	rows     []rowsAt  // in the order of time
	calm     time.Time // when the last strike began that hit a relay with a new snapshot
	lost     bool      // a slot was lost since calm
	strike   *disturbance
	refilled int // records with the header of a refill
}

// A disturbance is the time of a strike: a refill may send again what was delivered in it.
type disturbance struct{ from, over time.Time } // over is zero until new rows are delivered

type rowsAt struct {
	at   time.Time
	rows int
}

// sample records the number of different rows in the topics.
func (d *delivered) sample(at time.Time, rows int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, rowsAt{at, rows})
}

// until returns the number of rows delivered by a moment, of all rows if it is zero.
func (d *delivered) until(t time.Time) int {
	if len(d.rows) == 0 {
		return 0
	}
	if t.IsZero() {
		t = time.Now()
	}
	i, _ := slices.BinarySearchFunc(d.rows, t, func(r rowsAt, t time.Time) int { return r.at.Compare(t) })
	return d.rows[min(i, len(d.rows)-1)].rows
}

// disturb records a strike. If a slot is lost, by this one or by one since the relay was calm, it returns how many
// rows may be sent again, otherwise nil.
func (d *delivered) disturb(at time.Time, loses bool) (rows func() int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.strike == nil || !d.strike.over.IsZero() && at.Sub(d.strike.over) > calmAfter {
		d.calm, d.lost = at, false
	}
	d.lost = d.lost || loses
	struck := &disturbance{from: d.calm.Add(-calmAfter)}
	d.strike = struck
	if !d.lost {
		return nil
	}
	return func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.until(struck.over) - d.until(struck.from)
	}
}

// recovered records that new rows are delivered after the last strike.
func (d *delivered) recovered(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.strike != nil {
		d.strike.over = at
	}
}

// take removes the header of a refill, which is not the event's own.
func (d *delivered) take(r *Record) {
	if n := len(r.Headers); n > 0 && r.Headers[n-1] == (delivery.Header{Key: "refilled", Value: "true"}) {
		r.Headers = r.Headers[:n-1]
		d.mu.Lock()
		defer d.mu.Unlock()
		d.refilled++
	}
}

func (d *delivered) refills() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refilled
}
