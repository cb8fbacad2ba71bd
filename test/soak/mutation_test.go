package soak

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// A mutation makes of a good relay one with a known bug, from outside: on its way between
// the relay and its servers, what the relay says or hears is changed.
type mutation struct {
	tamper  func(w *wireState) walproxy.Tamper
	fake    func(*kafkatest.FakeCluster)
	before  func(context.Context, *pgx.Conn) error // called before the relay is restarted
	major   int                                    // of Postgres; 0: the default
	missing bool                                   // one topic is missing: see soakConfig
	refill  bool                                   // the relay refills what a lost slot has not delivered: see soakConfig
	breaks  map[Attack]int                         // nil: the default ones, without those on the broker
	want    []delivery.Kind                        // one of these must be found
	sender  time.Duration                          // wal_sender_timeout; 0: as in a soak
	twins   int                                    // of 100 transactions; 0: as in a soak
	park    bool                                   // the relay parks keys: see soakConfig
}

// mutations are bugs that relays have had. Each loses, repeats or confirms what it must not. Package twin has more of them, and TestChecker
// and TestConfirms have a line for each kind of violation.
func mutations() map[string]mutation {
	// What is left out comes after all when the relay is killed in time.
	// The relay itself finds it when it was sent and not yet confirmed before.
	missing := []delivery.Kind{delivery.Lost, delivery.Torn, delivery.Gap, BrokenRun, delivery.OutOfOrder, Never, Caught}
	all := map[string]mutation{
		"none": {},
		"none, and requests come late": {
			fake:   late,
			breaks: map[Attack]int{RelayKill: 1},
		},
		"confirms what it has received": {
			tamper: confirming(func(w *wireState, own pglogrepl.LSN) pglogrepl.LSN { return max(own, w.end) }),
			want:   []delivery.Kind{Early, Never, delivery.Lost},
		},
		"confirms what lies far ahead": {
			tamper: confirming(func(_ *wireState, own pglogrepl.LSN) pglogrepl.LSN { return own + 16<<20 }),
			want:   []delivery.Kind{Unread},
		},
		"confirms a keepalive while data is queued": {
			tamper: confirming(func(w *wireState, own pglogrepl.LSN) pglogrepl.LSN { return max(own, w.keepalive) }),
			fake:   stall,
			want:   []delivery.Kind{Early, Never, delivery.Lost},
		},
		"skips what begins where the last transaction ended": {
			tamper: (*wireState).skipping,
			fake:   stall,
			want:   missing,
			twins:  60, // two transactions have to meet at the very byte that was confirmed
		},
		"does not listen to notices": {
			tamper: deaf,
			sender: time.Minute, // so the catalog is read rarely
			major:  18,          // which warns where other versions fail
			breaks: map[Attack]int{PublicationDrop: 1},
			want:   missing,
		},
		"waits with one topic for another": {
			fake:    waitsForOthers,
			missing: true,
			want:    []delivery.Kind{NotAlive},
		},
		"takes a new producer id for each claim": {
			fake:   ownProducers,
			breaks: map[Attack]int{RelayKill: 1},
			want:   []delivery.Kind{OldWriter},
		},
		"creates a lost slot again": {
			before: recreateSlot,
			want:   []delivery.Kind{delivery.Gap, delivery.Lost, delivery.Torn},
		},
	}
	maps.Copy(all, refillMutations(missing))
	maps.Copy(all, parkMutations())
	return all
}

// The oracle finds each mutation, and nothing where there is none. OUTBOX_TEST_MUTATION_CYCLES
// is how long it may take.
func TestOracleFindsMutations(t *testing.T) {
	need.FullRun(t, "it runs a soak test for each mutation")
	for name, m := range mutations() {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains([]string{"none", "confirms what it has received"}, name) {
				need.FullRun(t, "each takes seconds")
			}
			cycles := rig.EnvInt(t, "OUTBOX_TEST_MUTATION_CYCLES", 200)
			if m.want == nil {
				cycles = min(cycles, strikesOfNone())
			}
			s := newSoak(t, m.config())
			if m.breaks == nil {
				m.breaks = WithoutBroker(DefaultWeights())
			}
			s.run(t, cycles, m.breaks)
			m.judge(t, s)
		})
	}
}

// strikesOfNone is how many strikes have to find nothing in a relay without a mutation.
func strikesOfNone() int {
	if need.Full() {
		return 10
	}
	return 3
}

func (m mutation) config() soakConfig {
	cfg := soakConfig{fake: func(*kafkatest.FakeCluster) {}, before: m.before, major: m.major, twins: m.twins, missing: m.missing, refill: m.refill, sender: m.sender, park: m.park}
	if m.fake != nil {
		cfg.fake = m.fake
	}
	if m.want != nil && !m.refill && !m.park { // a refill and parked keys need the topic
		cfg.settings = `position_topic: ""` // with it, the relay itself notices most of them
	}
	if m.tamper != nil {
		cfg.tamper = m.tamper(&wireState{})
	}
	return cfg
}

func (m mutation) judge(t *testing.T, s *soak) {
	t.Helper()
	found := s.found()
	t.Logf("%d strikes, %d positions confirmed, %d violations", len(s.strikes), s.confirms.Updates(), len(found))
	i := slices.IndexFunc(found, func(v Violation) bool { return slices.Contains(m.want, v.Kind) })
	switch {
	case i >= 0:
		t.Logf("found %s", found[i].String())
	case m.want != nil:
		t.Errorf("none of %v was found", m.want)
		fallthrough
	default:
		s.complain(t)
	}
}

// stall makes one partition wait for its replicas half of the time, while others go on.
func stall(fake *kafkatest.FakeCluster) {
	fake.Control.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1,
		When: func(kmsg.Request) bool { return rand.IntN(2) > 0 },
	})
}

// recreateSlot drops the slot and creates it again at the end of the WAL. It first waits until the WAL sender of the relay
// that was killed has released the slot, and until transactions are committed that no relay has read.
func recreateSlot(ctx context.Context, conn *pgx.Conn) error {
	const skipped = 10 // transactions; a few of them have no row
	var before int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM oracle.done`).Scan(&before); err != nil {
		return err
	}
	const ready = `SELECT (SELECT count(*) FROM oracle.done) >= $1
		AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $2 AND active)`
	for ok := false; !ok; time.Sleep(time.Millisecond) {
		if err := conn.QueryRow(ctx, ready, before+skipped, soakSlot).Scan(&ok); err != nil {
			return err
		}
	}
	return errors.Join(
		execute(ctx, conn, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '`+soakSlot+`'`),
		execute(ctx, conn, `SELECT pg_create_logical_replication_slot('`+soakSlot+`', 'pgoutput')`))
}
