package twin

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// mutationSeeds is the maximum number of seeds until each bug is found. The first seed finds
// most bugs, and one seed in ten finds the rarest.
const mutationSeeds = 300

// A mutation puts one bug into a world. For a bug of the relay, it changes the messages between the
// relay and the server.
type mutation struct {
	name string
	put  func(*world, *rand.Rand)
	want string // text that one of the violations must contain
}

var mutations = []mutation{
	{"the walsender leaves a transaction out", func(w *world, rng *rand.Rand) {
		w.postgres.sends = func(tx *transaction) bool { return len(tx.rows) == 0 || rng.IntN(10) > 0 }
	}, "are not stored"},
	{"a broker acknowledges and does not store", stores(func(rng *rand.Rand, rs []record) []record {
		if rng.IntN(10) == 0 {
			return nil
		}
		return rs
	}), "are not stored"},
	{"a broker stores twice", stores(func(rng *rand.Rand, rs []record) []record {
		if rng.IntN(10) == 0 {
			return slices.Concat(rs, rs)
		}
		return rs
	}), "twice"},
	{"a broker stores in another order", stores(func(_ *rand.Rand, rs []record) []record {
		slices.Reverse(rs)
		return rs
	}), "it has not come, but"},
	{"a broker changes a byte", stores(func(rng *rand.Rand, rs []record) []record {
		if rng.IntN(10) == 0 {
			rs[0].value += "."
		}
		return rs
	}), "its value is not the event's"},
	{"a broker makes a record up", stores(func(rng *rand.Rand, rs []record) []record {
		if rng.IntN(10) == 0 {
			return append(rs, record{key: "key", value: "value"})
		}
		return rs
	}), "no event has such a record"},
	{"a position is told before it is recorded", confirms(func(w *world, c *client, lsn pglogrepl.LSN) pglogrepl.LSN {
		return max(lsn, w.history.prefix(c.sender.start))
	}), "is recorded"},
	{"a position record is acknowledged and not stored", func(w *world, rng *rand.Rand) {
		w.kafka.tamper = func(topic string, rs []record) []record {
			if topic == positions && rng.IntN(2) == 0 {
				return nil
			}
			return rs
		}
	}, "is recorded"},
	{"confirmed is the newest transaction that is stored", unrecorded(confirms(func(w *world, _ *client, lsn pglogrepl.LSN) pglogrepl.LSN {
		return max(lsn, w.history.newest())
	})), "are not stored"},
	{"confirmed is what was read", unrecorded(confirms(func(_ *world, c *client, lsn pglogrepl.LSN) pglogrepl.LSN {
		return max(lsn, c.sender.sent)
	})), "are not stored"},
	{"confirmed is one byte more", unrecorded(confirms(func(_ *world, _ *client, lsn pglogrepl.LSN) pglogrepl.LSN {
		if lsn > 0 {
			lsn++
		}
		return lsn
	})), "is neither the end"},
	{"confirmed goes back", confirms(func(_ *world, c *client, lsn pglogrepl.LSN) pglogrepl.LSN {
		if lsn == c.sender.told {
			return c.sender.start
		}
		return lsn
	}), " after 0/"},
	{"a session starts where the log ends", starts(func(w *world) pglogrepl.LSN { return w.postgres.end() }), "a session from"},
	{"a session starts where the last one ended, whatever the timeline", unrecorded(starts(func(w *world) pglogrepl.LSN { return w.history.confirmedEver() })), "a session from"},
	{"the relay stops late", func(w *world, _ *rand.Rand) { w.deaf = time.Minute }, "has not ended"},
}

// The history finds each mutation.
func TestMutations(t *testing.T) {
	need.FullRun(t, "it draws seeds until each bug is found")
	for i, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for n := range uint64(mutationSeeds) {
				seed := 1000*uint64(i+1) + n
				w := play(t, seed, newWorld, func(w *world) { m.put(w, rand.New(rand.NewPCG(seed, 0))) })
				for _, v := range w.history.violations {
					if strings.Contains(v, m.want) {
						t.Logf("seed %d of %d, %d violations: %s", n+1, mutationSeeds, len(w.history.violations), v)
						return
					}
				}
			}
			t.Errorf("not found within %d seeds", mutationSeeds)
		})
	}
}

// stores mutates the batches of events that a broker stores.
func stores(change func(*rand.Rand, []record) []record) func(*world, *rand.Rand) {
	return func(w *world, rng *rand.Rand) {
		w.kafka.tamper = func(topic string, rs []record) []record {
			if topic == positions {
				return rs
			}
			return change(rng, rs)
		}
	}
}

// unrecorded turns off the position record, because its check would find other bugs first.
func unrecorded(put func(*world, *rand.Rand)) func(*world, *rand.Rand) {
	return func(w *world, rng *rand.Rand) {
		w.cfg.Positions, w.history.kept = position.Place{}, false
		w.parkKeys(false)
		w.cfg.RefillOnLoss = false
		put(w, rng)
	}
}

// confirms mutates status updates. It calls change with postgres.mu held.
func confirms(change func(*world, *client, pglogrepl.LSN) pglogrepl.LSN) func(*world, *rand.Rand) {
	return func(w *world, _ *rand.Rand) {
		w.wrap = func(c *conn) net.Conn {
			return &mutant{conn: c, change: func(b []byte) []byte {
				const size, written, clock = 39, 6, 30 // bytes; the positions write, flush and apply are in [written, clock)
				if len(b) != size || b[0] != 'd' || b[5] != 'r' {
					return b
				}
				w.postgres.mu.Lock()
				defer w.postgres.mu.Unlock()
				if w.postgres.slot.owner == nil {
					return b
				}
				lsn := change(w, w.postgres.slot.owner, pglogrepl.LSN(binary.BigEndian.Uint64(b[written:])))
				b = slices.Clone(b)
				for at := written; at < clock; at += 8 {
					binary.BigEndian.PutUint64(b[at:], uint64(lsn))
				}
				return b
			}}
		}
	}
}

// starts mutates START_REPLICATION.
func starts(change func(*world) pglogrepl.LSN) func(*world, *rand.Rand) {
	return func(w *world, _ *rand.Rand) {
		w.wrap = func(c *conn) net.Conn {
			return &mutant{conn: c, change: func(b []byte) []byte {
				if len(b) < 5 || b[0] != 'Q' || !startReplication.Match(b[5:]) {
					return b
				}
				at := startReplication.FindSubmatchIndex(b[5:])
				from, to := 5+at[2], 5+at[3]
				b = slices.Concat(b[:from], []byte(change(w).String()), b[to:])
				binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
				return b
			}}
		}
	}
}

// A mutant is a connection to the server that changes the messages of the relay.
type mutant struct {
	*conn
	change func([]byte) []byte
}

// Write changes and writes one message. The relay writes each message with one call.
func (m *mutant) Write(b []byte) (int, error) {
	if _, err := m.conn.Write(m.change(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// end returns the end of the WAL.
func (p *postgres) end() pglogrepl.LSN {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.walEnd
}

// prefix returns the end of the stored prefix: the end LSN of the last transaction that is stored with
// all transactions before it. It returns at least start.
func (h *history) prefix(start pglogrepl.LSN) pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whole == 0 {
		return start
	}
	return max(start, h.transactions[h.whole-1].endLSN)
}

// newest returns the end LSN of the newest transaction that is stored completely.
func (h *history) newest() pglogrepl.LSN {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, tx := range slices.Backward(h.transactions) {
		if tx.missing == 0 && len(tx.rows) > 0 {
			return tx.endLSN
		}
	}
	return 0
}
