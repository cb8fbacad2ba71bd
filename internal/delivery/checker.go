package delivery

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// A Config configures a Checker.
type Config struct {
	// AnyPartition allows an aggregate in several partitions, and records after its newest event. Set
	// it for topics whose number of partitions changes, and if several relays send at a time. The
	// caller must then pass the records of an aggregate in the order in which they count.
	AnyPartition bool

	// Missing reports whether an event may be missing, because an operator has discarded it. The answer may
	// change until Finish. If the event arrives, it must be in order. Nil: no event may be missing.
	Missing func(aggregate string, seq int64) bool
}

// A Checker compares records with events.
type Checker struct {
	cfg Config

	mu         sync.Mutex
	aggregates map[string]*aggregate
	doubts     map[doubt]sighting
	counts     Counts
	found      Violations
	repeated   []Violation // the first duplicates
}

// An aggregate has the state of the records of one aggregate.
type aggregate struct {
	topic     string      // of the first record
	partition int32       // of the first record
	newest    Coordinates // of the last record
	last      int64       // number of the last record's event
	max       int64       // highest number seen
	missing   []gap       // below max, ascending
}

// A gap is a range of numbers that were not seen although a later one was.
type gap struct {
	from, to  int64 // inclusive
	at        Coordinates
	violation int // index in the violations; -1: not kept
}

// A doubt identifies events of an aggregate whose transaction was InDoubt when their records were judged.
type doubt struct {
	tx        uuid.UUID
	aggregate string
}

// A sighting is the highest event of a doubt.
type sighting struct {
	seq   int64
	where Coordinates
}

// Counts counts the records that a Checker has judged.
type Counts struct {
	Records    int
	Events     int // different events, without phantoms and altered records
	Duplicates int
	OutOfOrder int
	Misplaced  int
	Altered    int
	Phantoms   int // without those that only Finish finds
}

// An Outcome is the judgement of a record.
type Outcome uint8

// The outcomes. Next, Ahead and Late are the first record of an event.
const (
	Next    Outcome = iota // in order
	Ahead                  // earlier events were not seen yet
	Late                   // a later event was already seen
	Again                  // a duplicate
	Refused                // a phantom, or altered
)

// First reports whether the record was the first of its event.
func (o Outcome) First() bool { return o <= Late }

// New returns a Checker.
func New(cfg Config) *Checker {
	return &Checker{cfg: cfg, aggregates: make(map[string]*aggregate), doubts: make(map[doubt]sighting)}
}

// Record judges a record of e. If e is nil, the record belongs to no event: it is altered if it has
// Damage, otherwise a phantom.
func (c *Checker) Record(r *Record, e *Event) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Records++
	switch {
	case e == nil && r.Damage == "":
		return c.phantom(at(Phantom, &Event{Aggregate: string(r.Key)}, r.Coordinates, "no event has such a record"))
	case e == nil:
		return c.altered(at(Altered, &Event{Aggregate: string(r.Key)}, r.Coordinates, "%s", r.Damage))
	case e.Fate == RolledBack || e.Fate == Unwritten:
		return c.phantom(at(Phantom, e, r.Coordinates, "the event was %s", e.Fate))
	}
	if damage := e.compare(r); damage != "" {
		return c.altered(at(Altered, e, r.Coordinates, "%s", damage))
	}
	if e.Fate == Forgotten {
		return c.again(e, r)
	}
	if d := (doubt{e.Tx, e.Aggregate}); e.Fate == InDoubt && e.Seq > c.doubts[d].seq {
		c.doubts[d] = sighting{e.Seq, r.Coordinates}
	}
	return c.place(e, r)
}

func (c *Checker) phantom(v Violation) Outcome {
	c.counts.Phantoms++
	c.found.Add(v)
	return Refused
}

func (c *Checker) altered(v Violation) Outcome {
	c.counts.Altered++
	c.found.Add(v)
	return Refused
}

func (c *Checker) again(e *Event, r *Record) Outcome {
	c.counts.Duplicates++
	if len(c.repeated) < maxViolations {
		c.repeated = append(c.repeated, at(Duplicate, e, r.Coordinates, "the event has an earlier record: duplicate %d", c.counts.Duplicates))
	}
	return Again
}

// compare returns how r differs from e, without payloads. It returns "" if it does not.
func (e *Event) compare(r *Record) string {
	switch {
	case r.Damage != "":
		return r.Damage
	case r.Topic != e.Topic:
		return "its topic is not " + e.Topic
	case string(r.Key) != e.Key:
		return fmt.Sprintf("its key is %q, not %q", r.Key, e.Key)
	case !slices.Equal(r.Headers, e.Headers):
		return fmt.Sprintf("its headers %s are not the event's, %s", names(r.Headers), names(e.Headers))
	case string(r.Value) != e.Value:
		return "its value is not the event's"
	}
	return ""
}

// names returns the names of headers.
func names(headers []Header) []string {
	all := make([]string, len(headers))
	for i, h := range headers {
		all[i] = h.Key
	}
	return all
}

// place judges the order of the event among those of its aggregate.
func (c *Checker) place(e *Event, r *Record) Outcome {
	a := c.aggregates[e.Aggregate]
	if a == nil {
		a = &aggregate{topic: r.Topic, partition: r.Partition, newest: Coordinates{Offset: -1}}
		c.aggregates[e.Aggregate] = a
	}
	if !c.cfg.AnyPartition {
		c.located(a, e, r)
	}
	a.last, a.newest = e.Seq, r.Coordinates
	switch {
	case e.Seq > a.max+1:
		g := gap{from: a.max + 1, to: e.Seq - 1, at: r.Coordinates, violation: -1}
		if n, first := c.required(e.Aggregate, g.from, g.to); n > 0 {
			v := at(Gap, e, r.Coordinates, "it has not come, but %d has", e.Seq)
			v.Seq, v.ID, v.Tx = first, "", uuid.Nil
			g.violation = c.found.Add(v)
		}
		a.missing = append(a.missing, g)
		a.max = e.Seq
		c.counts.Events++
		return Ahead
	case e.Seq == a.max+1:
		a.max = e.Seq
		c.counts.Events++
		return Next
	case c.fill(a, e, r):
		c.counts.Events++
		c.counts.OutOfOrder++
		return Late
	}
	return c.again(e, r)
}

// required returns how many events of a range, inclusive, may not be missing, and the first of them.
func (c *Checker) required(aggregate string, from, to int64) (n int, first int64) {
	if c.cfg.Missing == nil {
		return int(to - from + 1), from
	}
	for seq := from; seq <= to; seq++ {
		if c.cfg.Missing(aggregate, seq) {
			continue
		}
		if n == 0 {
			first = seq
		}
		n++
	}
	return n, first
}

// located checks that the record is after the earlier ones of the aggregate.
func (c *Checker) located(a *aggregate, e *Event, r *Record) {
	switch {
	case r.Partition != a.partition || r.Topic != a.topic:
		c.counts.Misplaced++
		c.found.Add(at(Misplaced, e, r.Coordinates, "its aggregate's first record is in %s[%d]", a.topic, a.partition))
	case r.Partition == a.newest.Partition && r.Offset <= a.newest.Offset:
		c.found.Add(at(OffsetOrder, e, r.Coordinates, "it was read after offset %d", a.newest.Offset))
	}
}

// fill removes e from its gap: it was not lost, but is late.
func (c *Checker) fill(a *aggregate, e *Event, r *Record) bool {
	for i := range a.missing {
		g := &a.missing[i]
		if e.Seq < g.from || e.Seq > g.to {
			continue
		}
		late := at(OutOfOrder, e, g.at, "it came at %s, after a later event", r.Coordinates)
		if g.violation >= 0 {
			c.found.First[g.violation] = late
		} else {
			c.found.Add(late)
		}
		rest := []gap{{g.from, e.Seq - 1, g.at, -1}, {e.Seq + 1, g.to, g.at, -1}}
		rest = slices.DeleteFunc(rest, func(g gap) bool { return g.from > g.to })
		a.missing = slices.Replace(a.missing, i, i+1, rest...)
		return true
	}
	return false
}

// Delivered returns how many events of an aggregate were seen before the first missing one.
func (c *Checker) Delivered(aggregate string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.aggregates[aggregate]
	switch {
	case a == nil:
		return 0
	case len(a.missing) > 0:
		return a.missing[0].from - 1
	}
	return a.max
}

// Forget drops the state of an aggregate, which must not get further events. The fate of its events is
// then Forgotten.
func (c *Checker) Forget(aggregate string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.aggregates, aggregate)
}

// Counts returns the counts so far.
func (c *Checker) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Repeated returns the first hundred duplicates.
func (c *Checker) Repeated() *Violations {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Violations{slices.Clone(c.repeated), c.counts.Duplicates}
}

// Violations returns the violations so far, without duplicates. A Gap may still become OutOfOrder.
func (c *Checker) Violations() *Violations {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found.clone()
}
