package oracle

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A Record is what a reader sees. Its slices are used during the call only.
type Record struct {
	Coordinates
	Key, Value []byte
	Headers    []Header
	Producer   Producer
	Seen       time.Time // by the reader
}

// A Producer is the identity that brokers number a producer's batches by.
type Producer struct {
	ID    int64 // negative: none
	Epoch int16
}

// A Checker compares records with a [Journal]. What it keeps grows with the
// number of aggregates and transactions, not with payloads. As long as no fault
// explains repetitions (see Fault), every event has to come exactly once.
type Checker struct {
	run     string
	journal *Journal

	mu         sync.Mutex
	aggregates map[string]*aggregate
	seen       map[uuid.UUID]*sighting
	offsets    map[topicPartition]int64 // of the last record
	faults     []Fault
	births     map[Producer]int // after which fault a producer was seen first, -1: before all
	records    int
	rows       int // different events among the records
	fresh      time.Time
	violations []Violation
	broken     int
}

type topicPartition struct {
	topic string
	id    int32
}

// An aggregate is what has been seen of one.
type aggregate struct {
	partition topicPartition
	max       int64 // the highest number seen
	last      int64 // the number of the newest record
	lastAt    Coordinates
	runs      []run // of the newest producers, by their first record
	missing   []gap // below max, ascending
}

// A run is what one producer has written of an aggregate.
type run struct {
	producer Producer
	last     int64
}

// maxRuns is how many producers of an aggregate are remembered.
const maxRuns = 8

// A gap is numbers that have not come although a later one has.
type gap struct {
	from, to  int64 // inclusive
	at        Coordinates
	violation int // index, -1: not kept
}

// A sighting is what has been seen of a transaction.
type sighting struct {
	rows  []uint64 // a bit for each
	count int
	first Coordinates
	event Event // the first
}

// NewChecker returns a Checker of one run of writers.
func NewChecker(run string, j *Journal) *Checker {
	return &Checker{
		run: run, journal: j, aggregates: make(map[string]*aggregate),
		births: make(map[Producer]int), seen: make(map[uuid.UUID]*sighting), offsets: make(map[topicPartition]int64),
	}
}

func (c *Checker) violation(v Violation) (index int) {
	c.broken++
	if len(c.violations) == maxViolations {
		return -1
	}
	if v.LSN == 0 && v.Tx != uuid.Nil {
		tx, _ := c.journal.lookup(v.Tx)
		v.LSN = tx.commitLSN
	}
	c.violations = append(c.violations, v)
	return len(c.violations) - 1
}

// at begins a violation that an event in a record shows.
func at(k Kind, e Event, where Coordinates, format string, args ...any) Violation {
	return Violation{Kind: k, Record: where, Aggregate: e.Aggregate, Seq: e.Seq, Tx: e.Tx, Detail: fmt.Sprintf(format, args...)}
}

// Record checks one record. Records of a partition have to come in the order
// of their offsets. It returns the event the record carries, if it carries one.
func (c *Checker) Record(r *Record) (Event, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records++
	p := topicPartition{r.Topic, r.Partition}
	if last, ok := c.offsets[p]; ok && r.Offset <= last {
		c.violation(Violation{Kind: OffsetOrder, Record: r.Coordinates, Detail: fmt.Sprintf("after offset %d", last)})
	}
	c.offsets[p] = r.Offset
	c.appears(r.Producer, r.Seen)

	e, err := ParsePayload(r.Value)
	if err != nil {
		c.violation(Violation{Kind: Altered, Record: r.Coordinates, Aggregate: string(r.Key), Detail: err.Error()})
		return Event{}, false
	}
	if e.Run != c.run {
		c.violation(at(Phantom, e, r.Coordinates, "of run %s", e.Run))
		return e, false
	}
	c.envelope(e, r)
	tx, ok := c.journal.lookup(e.Tx)
	if !c.belongs(e, &tx, ok, r) {
		return e, false
	}
	c.order(e, &tx, p, r)
	return e, true
}

// envelope checks what is around the payload.
func (c *Checker) envelope(e Event, r *Record) {
	switch want := e.Headers(); {
	case string(r.Key) != e.Aggregate:
		c.violation(at(Altered, e, r.Coordinates, "the key is %q", r.Key))
	case !slices.Equal(r.Headers, want):
		c.violation(at(Altered, e, r.Coordinates, "the headers are %v, not %v", r.Headers, want))
	}
}

// belongs checks that the event is one of its transaction, and counts it.
func (c *Checker) belongs(e Event, tx *entry, known bool, r *Record) bool {
	switch {
	case !known:
		c.violation(at(Phantom, e, r.Coordinates, "nobody has begun the transaction"))
		return false
	case tx.outcome == RolledBack:
		c.violation(at(Phantom, e, r.Coordinates, "the transaction or savepoint was rolled back"))
		return false
	}
	aggregate, seq, ok := tx.row(e.Index)
	if !ok || aggregate != e.Aggregate || seq != e.Seq || e.Count != tx.rows {
		c.violation(at(Altered, e, r.Coordinates, "row %d of the transaction, of %d rows, is %s/%d", e.Index, tx.rows, aggregate, seq))
		return false
	}
	s := c.seen[e.Tx]
	if s == nil {
		s = &sighting{rows: make([]uint64, (tx.rows+63)/64), first: r.Coordinates, event: e}
		c.seen[e.Tx] = s
	}
	if bit := uint64(1) << (e.Index % 64); s.rows[e.Index/64]&bit == 0 {
		s.rows[e.Index/64] |= bit
		s.count++
	}
	return true
}

// order checks the event's place among those of its aggregate.
func (c *Checker) order(e Event, tx *entry, p topicPartition, r *Record) {
	a := c.aggregates[e.Aggregate]
	if a == nil {
		a = &aggregate{partition: p}
		c.aggregates[e.Aggregate] = a
	}
	if a.partition != p {
		c.violation(at(Misplaced, e, r.Coordinates, "its earlier events are in %s[%d]", a.partition.topic, a.partition.id))
	}
	filled := e.Seq < a.max && c.fill(a, e, r)
	switch {
	case filled:
		c.rows++
	case e.Seq > a.max+1:
		c.gap(a, e, r)
	default:
		c.rising(a, e, r)
	}
	if e.Seq > a.max {
		a.max = e.Seq
		c.rows++
		if tx.begun.After(c.fresh) {
			c.fresh = tx.begun
		}
	}
	a.last, a.lastAt = e.Seq, r.Coordinates
	i := a.find(r.Producer)
	if !filled || i < 0 || e.Seq == a.runs[i].last+1 { // else what follows goes on behind the record that came too early
		a.advance(r.Producer, e.Seq)
	}
}

// gap notes that events before e have not come.
func (c *Checker) gap(a *aggregate, e Event, r *Record) {
	v := at(Gap, e, r.Coordinates, "it has not come, but %d of transaction %s has", e.Seq, e.Tx)
	v.Seq, v.Tx = a.max+1, uuid.Nil
	a.missing = append(a.missing, gap{from: a.max + 1, to: e.Seq - 1, at: r.Coordinates, violation: c.violation(v)})
}

// fill takes e out of the gap it belongs to: it was not lost, but came late.
func (c *Checker) fill(a *aggregate, e Event, r *Record) bool {
	for i := range a.missing {
		g := &a.missing[i]
		if e.Seq < g.from || e.Seq > g.to {
			continue
		}
		if g.violation >= 0 {
			v := &c.violations[g.violation]
			v.Kind, v.Detail = Reordered, fmt.Sprintf("it came at %s, after a later event", r.Coordinates)
			v.Seq, v.Tx = e.Seq, e.Tx
		}
		rest := []gap{{g.from, e.Seq - 1, g.at, -1}, {e.Seq + 1, g.to, g.at, -1}}
		rest = slices.DeleteFunc(rest, func(g gap) bool { return g.from > g.to })
		a.missing = slices.Replace(a.missing, i, i+1, rest...)
		return true
	}
	return false
}

// rising checks that e goes on with what its producer has written of the
// aggregate, and counts it if it is a repetition.
func (c *Checker) rising(a *aggregate, e Event, r *Record) {
	if i := a.find(r.Producer); i >= 0 {
		switch last := a.runs[i].last; {
		case e.Seq > last+1:
			c.violation(at(BrokenRun, e, r.Coordinates, "the producer's last event of the aggregate was %d", last))
		case e.Seq <= last && r.Producer.ID >= 0:
			c.violation(at(Duplicate, e, r.Coordinates, "the same producer has written it before"))
		}
	}
	if e.Seq <= a.max {
		c.duplicate(a, e, r)
	}
}

func (a *aggregate) find(p Producer) int {
	return slices.IndexFunc(a.runs, func(r run) bool { return r.producer == p })
}

func (a *aggregate) advance(p Producer, seq int64) {
	i := a.find(p)
	switch {
	case i < 0:
		if len(a.runs) == maxRuns {
			a.runs = slices.Delete(a.runs, 0, 1)
		}
		a.runs = append(a.runs, run{p, seq})
	case p.ID < 0 || seq > a.runs[i].last: // who has no identity may begin again
		a.runs[i].last = seq
	}
}
