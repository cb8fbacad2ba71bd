package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A history is what a correct relay made of random transactions, killed now and
// then, before and after one corruption.
type history struct {
	rng     *rand.Rand
	journal *Journal
	records []*Record // by the time they were seen
	events  []Event   // of records
	faults  []kill
}

type kill struct {
	at      time.Time
	allowed int
}

// partitionOf is that of an aggregate's records.
func partitionOf(aggregate string) int32 { return int32(aggregate[len(aggregate)-1]) % 3 }

func newHistory(rng *rand.Rand) *history {
	h := &history{rng: rng, journal: NewJournal(nil)}
	h.relay(h.write(20 + rng.IntN(30)))
	return h
}

// write makes n transactions and returns the committed rows, in order.
func (h *history) write(n int) []Event {
	next := map[string]int64{}
	var wal []Event
	for range n {
		id := uuid.UUID(binaryID(h.rng))
		drawn := maps.Clone(next)
		var spans []delivery.Span
		for range 1 + h.rng.IntN(3) {
			s := delivery.Span{Aggregate: fmt.Sprintf("a%d", h.rng.IntN(6)), Rows: 1 + h.rng.IntN(4)}
			s.First = drawn[s.Aggregate] + 1
			drawn[s.Aggregate] += int64(s.Rows)
			spans = append(spans, s)
		}
		h.journal.Begin(id, epoch, spans)
		if h.rng.IntN(4) == 0 {
			h.journal.Resolve(id, delivery.RolledBack)
			continue
		}
		h.journal.Resolve(id, delivery.Committed)
		next = drawn
		e, _ := h.journal.lookup(id)
		for i := range e.rows {
			aggregate, seq, _ := e.row(i)
			wal = append(wal, Event{Run: "run", Aggregate: aggregate, Seq: seq, Tx: id, Index: i, Count: e.rows})
		}
	}
	return wal
}

func binaryID(rng *rand.Rand) (id [16]byte) {
	for i := range id {
		id[i] = byte(rng.Uint32())
	}
	return id
}

// relay writes the records of wal, each producer going back behind what the one
// before it has written.
func (h *history) relay(wal []Event) {
	clock, high := epoch, 0
	for from, producer := 0, int64(1); ; producer++ {
		to := min(len(wal), from+1+h.rng.IntN(40))
		for _, e := range wal[from:to] {
			clock = clock.Add(time.Millisecond)
			h.put(len(h.records), e, producer, clock)
		}
		if to == len(wal) {
			return
		}
		high = max(high, to)
		from = max(0, to-h.rng.IntN(20))
		clock = clock.Add(time.Millisecond)
		h.faults = append(h.faults, kill{clock, high - from})
	}
}

func (h *history) put(i int, e Event, producer int64, seen time.Time) {
	r := recordOf(e, partitionOf(e.Aggregate), 0, Producer{ID: producer}, seen)
	h.records = slices.Insert(h.records, i, r)
	h.events = slices.Insert(h.events, i, e)
}

func (h *history) remove(i int) {
	h.records = slices.Delete(h.records, i, i+1)
	h.events = slices.Delete(h.events, i, i+1)
}

// check hands the history to a checker and returns what it finds.
func (h *history) check() []Violation {
	next := map[int32]int64{}
	for _, r := range h.records {
		r.Offset = next[r.Partition]
		next[r.Partition]++
	}
	c := NewChecker("run", h.journal, delivery.Config{})
	for _, k := range h.faults {
		c.Fault("kill", k.at, explains(k.allowed))
	}
	for _, r := range h.records {
		c.Record(r)
	}
	c.Finish()
	found, _ := c.Violations()
	return found
}

// pick returns a random index whose event satisfies cond; false if none does.
func (h *history) pick(cond func(i int) bool) (int, bool) {
	var all []int
	for i := range h.events {
		if cond(i) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[h.rng.IntN(len(all))], true
}

func same(a, b Event) bool { return a.Aggregate == b.Aggregate && a.Seq == b.Seq }

// isFirst reports whether record i is the first of its event.
func (h *history) isFirst(i int) bool {
	return !slices.ContainsFunc(h.events[:i], func(e Event) bool { return same(e, h.events[i]) })
}

// neighbour returns the next record of the aggregate after record i.
func (h *history) neighbour(i int) (int, bool) {
	for j := i + 1; j < len(h.events); j++ {
		if h.events[j].Aggregate == h.events[i].Aggregate {
			return j, true
		}
	}
	return 0, false
}

// anything satisfies every event.
func anything(int) bool { return true }

// An expectation is the violation a corruption must be named as. Record nil is
// not compared.
type expectation struct {
	kind   delivery.Kind
	event  Event
	record *Record
}

// corruptions break one thing each; false if the history has no place for it.
var corruptions = map[string]func(h *history) (expectation, bool){
	"drop a row": func(h *history) (expectation, bool) {
		i, ok := h.pick(func(i int) bool { return h.events[i].Count > 1 })
		if !ok {
			return expectation{}, false
		}
		e := h.events[i]
		h.drop(func(other Event) bool { return same(e, other) })
		return expectation{kind: delivery.Torn, event: e, record: h.firstLater(e)}, true
	},
	"drop a transaction": func(h *history) (expectation, bool) {
		i, _ := h.pick(anything)
		victim := h.events[i].Tx
		var first Event
		for _, e := range h.events {
			if e.Tx == victim && e.Index == 0 {
				first = e
			}
		}
		h.drop(func(e Event) bool { return e.Tx == victim })
		return expectation{kind: delivery.Lost, event: first, record: h.firstLater(first)}, true
	},
	"leave out an event of a repetition": func(h *history) (expectation, bool) {
		var later int
		i, ok := h.pick(func(i int) bool {
			j, ok := h.neighbour(i)
			before := slices.ContainsFunc(h.records[:i], func(r *Record) bool {
				return r.Producer == h.records[i].Producer && string(r.Key) == string(h.records[i].Key)
			})
			return ok && before && !h.isFirst(i) && h.records[j].Producer == h.records[i].Producer
		})
		if !ok {
			return expectation{}, false
		}
		later, _ = h.neighbour(i)
		want := expectation{kind: BrokenRun, event: h.events[later], record: h.records[later]}
		h.remove(i)
		return want, true
	},
	"repeat by the same producer": func(h *history) (expectation, bool) {
		i, _ := h.pick(anything)
		h.put(i+1, h.events[i], h.records[i].Producer.ID, h.records[i].Seen)
		return expectation{kind: delivery.Duplicate, event: h.events[i], record: h.records[i+1]}, true
	},
	"repeat by another producer before anything is broken": func(h *history) (expectation, bool) {
		first := slices.IndexFunc(h.records, func(r *Record) bool { return r.Producer.ID > 1 })
		if first < 1 {
			return expectation{}, false
		}
		i := h.rng.IntN(first)
		h.put(i+1, h.events[i], 1000, h.records[i].Seen)
		return expectation{kind: delivery.Duplicate, event: h.events[i], record: h.records[i+1]}, true
	},
	"reorder": func(h *history) (expectation, bool) {
		i, ok := h.pick(func(i int) bool {
			j, ok := h.neighbour(i)
			return ok && h.isFirst(i) && h.isFirst(j)
		})
		if !ok {
			return expectation{}, false
		}
		j, _ := h.neighbour(i)
		early := h.records[j]
		moved := h.events[j]
		h.remove(j)
		h.records = slices.Insert(h.records, i, early)
		h.events = slices.Insert(h.events, i, moved)
		return expectation{kind: delivery.OutOfOrder, event: h.events[i+1], record: early}, true
	},
	"the producer before the newest writes again": func(h *history) (expectation, bool) {
		i, ok := h.pick(func(i int) bool {
			return slices.ContainsFunc(h.records[:i], func(r *Record) bool {
				return r.Partition == h.records[i].Partition && r.Producer.ID < h.records[i].Producer.ID
			})
		})
		if !ok {
			return expectation{}, false
		}
		old := slices.IndexFunc(h.records, func(r *Record) bool { return r.Partition == h.records[i].Partition })
		h.put(i+1, h.events[i], h.records[old].Producer.ID, h.records[i].Seen)
		return expectation{kind: OldWriter, event: Event{Aggregate: h.events[i].Aggregate}, record: h.records[i+1]}, true
	},
	"alter a byte": func(h *history) (expectation, bool) {
		i, _ := h.pick(anything)
		h.records[i].Value[h.rng.IntN(len(h.records[i].Value))] ^= 1 << h.rng.IntN(8)
		return expectation{kind: delivery.Altered, event: Event{Aggregate: h.events[i].Aggregate}, record: h.records[i]}, true
	},
	"swap the values of two aggregates": func(h *history) (expectation, bool) {
		i, _ := h.pick(anything)
		j, ok := h.pick(func(j int) bool { return j > i && h.events[j].Aggregate != h.events[i].Aggregate })
		if !ok {
			return expectation{}, false
		}
		a, b := h.records[i], h.records[j]
		a.Value, b.Value = b.Value, a.Value
		return expectation{kind: delivery.Altered, event: h.events[j], record: a}, true
	},
	"another partition": func(h *history) (expectation, bool) {
		i, ok := h.pick(func(i int) bool {
			return slices.ContainsFunc(h.events[:i], func(e Event) bool { return e.Aggregate == h.events[i].Aggregate })
		})
		if !ok {
			return expectation{}, false
		}
		h.records[i].Partition = (h.records[i].Partition + 1) % 3
		return expectation{kind: delivery.Misplaced, event: h.events[i], record: h.records[i]}, true
	},
	"phantom of a rollback": func(h *history) (expectation, bool) {
		for id, e := range h.journal.txs {
			if e.fate != delivery.RolledBack {
				continue
			}
			aggregate, seq, _ := e.row(0)
			event := Event{Run: "run", Aggregate: aggregate, Seq: seq, Tx: id, Count: e.rows}
			i, _ := h.pick(anything)
			h.put(i, event, h.records[i].Producer.ID, h.records[i].Seen)
			return expectation{kind: delivery.Phantom, event: event, record: h.records[i]}, true
		}
		return expectation{}, false
	},
	"phantom of nobody": func(h *history) (expectation, bool) {
		i, _ := h.pick(anything)
		e := h.events[i]
		e.Tx = binaryID(h.rng)
		h.put(i, e, h.records[i].Producer.ID, h.records[i].Seen)
		return expectation{kind: delivery.Phantom, event: e, record: h.records[i]}, true
	},
	"an old producer's request arrives last": func(h *history) (expectation, bool) {
		i, ok := h.pick(func(i int) bool { return h.firstLater(h.events[i]) != nil })
		if !ok {
			return expectation{}, false
		}
		last := h.records[len(h.records)-1]
		h.faults = append(h.faults, kill{last.Seen.Add(time.Millisecond), 1})
		h.put(len(h.records), h.events[i], 1000, last.Seen.Add(2*time.Millisecond))
		return expectation{kind: delivery.Stale, event: Event{Aggregate: h.events[i].Aggregate, Seq: h.events[i].Seq}, record: h.records[len(h.records)-1]}, true
	},
}

// drop removes every record of the events that satisfy cond.
func (h *history) drop(cond func(Event) bool) {
	for i, e := range slices.Backward(slices.Clone(h.events)) {
		if cond(e) {
			h.remove(i)
		}
	}
}

// firstLater returns the first record of a later event of e's aggregate, nil if
// e is the last.
func (h *history) firstLater(e Event) *Record {
	for i, other := range h.events {
		if other.Aggregate == e.Aggregate && other.Seq > e.Seq {
			return h.records[i]
		}
	}
	return nil
}

// A correct history is found correct; with any one corruption the checker names
// what was done, where.
func TestCheckerNames(t *testing.T) {
	const seeds = 30
	for name, corrupt := range corruptions {
		t.Run(name, func(t *testing.T) {
			applied := 0
			for seed := range uint64(seeds) {
				h := newHistory(rand.New(rand.NewPCG(seed, 0)))
				if found := h.check(); len(found) > 0 {
					t.Fatalf("seed %d: found before the corruption: %v", seed, texts(found))
				}
				want, ok := corrupt(h)
				if !ok {
					continue
				}
				applied++
				found := h.check()
				if !slices.ContainsFunc(found, want.isNamed) {
					t.Fatalf("seed %d: want %s of %s, at %v; found %v", seed, want.kind, want.event, want.record, texts(found))
				}
			}
			if applied < seeds/4 {
				t.Errorf("applied to %d of %d histories", applied, seeds)
			}
		})
	}
}

func (w expectation) isNamed(v Violation) bool {
	return v.Kind == w.kind && v.Aggregate == w.event.Aggregate && v.Seq == w.event.Seq &&
		(w.event.Tx == uuid.Nil || v.Tx == w.event.Tx) && (w.record == nil || v.Record == w.record.Coordinates)
}

// FuzzParsePayload looks for a value that is taken for an event it is not.
func FuzzParsePayload(f *testing.F) {
	f.Add(scriptEvent("a", 1).Payload(0))
	f.Add(scriptEvent("b", 2).Payload(300))
	f.Add([]byte(`"||||||"`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := ParsePayload(value)
		if err != nil {
			return
		}
		found, ok := FindEvent(value, e.Run)
		if !ok || found != e {
			t.Errorf("%q is %+v; in a message it is %+v", value, e, found)
		}
	})
}
