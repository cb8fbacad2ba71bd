package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A Fault explains duplicates: those of the producers that first appear between
// this fault and the next one.
type Fault struct {
	Name       string
	At         time.Time
	Explained  int // number of duplicates that the fault explains, as far as known
	Duplicates int // number of duplicates so far

	transactions map[uuid.UUID]int // number of duplicates of each transaction

	explain func() int // nil: Explained is final
}

func (f *Fault) update() {
	if f.explain != nil {
		f.Explained = f.explain()
	}
}

// Largest returns the number of transactions with duplicates, the most duplicates of one of them, and those of all
// with at least large.
func (f *Fault) Largest(large int) (transactions, most, ofLarge int) {
	for _, n := range f.transactions {
		most = max(most, n)
		if n >= large {
			ofLarge += n
		}
	}
	return len(f.transactions), most, ofLarge
}

// A Producer is the producer id and epoch of a batch.
type Producer struct {
	ID    int64 // negative: none
	Epoch int16
}

// String describes the producer in messages.
func (p Producer) String() string { return fmt.Sprintf("producer %d (epoch %d)", p.ID, p.Epoch) }

// A run is the records of an aggregate that one producer has written.
type run struct {
	producer Producer
	last     int64
}

// maxRuns is the number of producers per aggregate that repeats keeps.
const maxRuns = 8

// repeats checks that a fault explains each duplicate. Each producer writes a run of increasing numbers
// per aggregate. The run begins at most one after the highest number that is already in the topic. It leaves out
// events that another producer has written, but no event among duplicates.
type repeats struct {
	gaps bool // a run may have gaps
	// mayRepeat, if not nil, says of each row whether it may be a duplicate, instead of the numbers of the faults.
	mayRepeat func(rowKey) bool
	runs      map[string][]run // of the newest producers of an aggregate, by their first record
	faults    []Fault
	births    map[Producer]int // index of the last fault before the producer's first record; -1: none
	found     violations
}

func newRepeats(gaps bool) repeats {
	return repeats{gaps: gaps, runs: make(map[string][]run), births: make(map[Producer]int)}
}

func (c *repeats) violation(k delivery.Kind, e *delivery.Event, r *Record, format string, args ...any) {
	c.found.add(Violation{At: r.Seen, Violation: delivery.Violation{
		Kind: k, Record: r.Coordinates, Aggregate: e.Aggregate, Seq: e.Seq, Tx: e.Tx, Detail: fmt.Sprintf(format, args...),
	}})
}

func (c *repeats) fault(name string, at time.Time, explain func() int) {
	if n := len(c.faults); n > 0 {
		c.faults[n-1].update()
		c.faults[n-1].explain = nil
	}
	c.faults = append(c.faults, Fault{Name: name, At: at, explain: explain})
}

// judge checks that e continues the run of its producer, and counts e if it is a
// duplicate.
func (c *repeats) judge(e *delivery.Event, r *Record, outcome delivery.Outcome) {
	i := c.find(e.Aggregate, r.Producer)
	if i >= 0 && (outcome == delivery.Next || outcome == delivery.Again) {
		switch last := c.runs[e.Aggregate][i].last; {
		case e.Seq > last+1 && !c.gaps && (outcome == delivery.Again || r.Producer.ID < 0): // a new event follows those that another producer has written
			c.violation(BrokenRun, e, r, "the producer's last event of the aggregate was %d", last)
		case e.Seq <= last && r.Producer.ID >= 0:
			c.violation(delivery.Duplicate, e, r, "the same producer has written it before")
		}
	}
	if outcome == delivery.Again {
		c.duplicate(e, r)
	}
	if outcome != delivery.Late || i < 0 || e.Seq == c.runs[e.Aggregate][i].last+1 { // otherwise the run continues after the record that was too early
		c.advance(e, r.Producer)
	}
}

// duplicate counts a duplicate for the fault that caused it.
func (c *repeats) duplicate(e *delivery.Event, r *Record) {
	i := c.cause(r)
	if i < 0 {
		c.violation(delivery.Duplicate, e, r, "nothing was broken before it")
		return
	}
	f := &c.faults[i]
	f.update()
	f.Duplicates++
	if f.transactions == nil {
		f.transactions = make(map[uuid.UUID]int)
	}
	f.transactions[e.Tx]++
	if c.mayRepeat != nil {
		if !c.mayRepeat(rowKey{e.Aggregate, e.Seq}) {
			c.violation(delivery.Duplicate, e, r, "no fault makes the relay send it again, the last one, %s, included", f.Name)
		}
		return
	}
	if f.Duplicates > f.Explained {
		c.violation(delivery.Duplicate, e, r, "duplicate %d after fault %d, %s, which explains %d", f.Duplicates, i, f.Name, f.Explained)
	}
}

// cause returns the index of the fault that explains a duplicate, or -1 for none.
// A producer writes an event only once. So the cause is the last fault before the
// producer's first record, even if other faults followed before the reader read
// the duplicate.
func (c *repeats) cause(r *Record) int {
	if r.Producer.ID < 0 {
		return c.lastFault(r.Seen)
	}
	return c.births[r.Producer]
}

// appears records the last fault before the first record of a producer.
func (c *repeats) appears(p Producer, seen time.Time) {
	if _, known := c.births[p]; !known {
		c.births[p] = c.lastFault(seen)
	}
}

// lastFault returns the index of the last fault that is not after a time, or -1 for none.
func (c *repeats) lastFault(t time.Time) int {
	i := len(c.faults) - 1
	for i >= 0 && t.Before(c.faults[i].At) {
		i--
	}
	return i
}

func (c *repeats) find(aggregate string, p Producer) int {
	return slices.IndexFunc(c.runs[aggregate], func(r run) bool { return r.producer == p })
}

func (c *repeats) advance(e *delivery.Event, p Producer) {
	runs := c.runs[e.Aggregate]
	i := c.find(e.Aggregate, p)
	switch {
	case i < 0:
		if len(runs) == maxRuns {
			runs = slices.Delete(runs, 0, 1)
		}
		runs = append(runs, run{p, e.Seq})
	case p.ID < 0 || e.Seq > runs[i].last: // without an identity, several producers share a run
		runs[i].last = e.Seq
	}
	c.runs[e.Aggregate] = runs
}
