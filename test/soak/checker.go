package soak

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A Record is what a reader sees. Its slices are used during the call only.
type Record struct {
	delivery.Record
	Producer Producer
	Seen     time.Time // by the reader
}

// A Checker compares records with a [Journal]. As long as no fault explains duplicates (see Fault),
// every event has to come exactly once.
type Checker struct {
	run      string
	journal  *Journal
	delivery *delivery.Checker

	mu      sync.Mutex
	repeats repeats
	fence   fence
	fresh   map[string]time.Time // by topic: see Behind
	end     *delivery.Violations // nil before Finish
}

// NewChecker returns a Checker of one run of writers.
func NewChecker(run string, j *Journal) *Checker {
	return &Checker{
		run: run, journal: j, delivery: delivery.New(delivery.Config{}), repeats: newRepeats(),
		fence: fence{partitions: make(map[place]*writings)}, fresh: make(map[string]time.Time),
	}
}

// Record checks one record. Records of a partition have to come in the order
// of their offsets. It returns the event the record carries, if it carries one.
func (c *Checker) Record(r *Record) (Event, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats.appears(r.Producer, r.Seen)
	c.fence.judge(r)
	event, err := ParsePayload(r.Value)
	judged := r.Record
	judged.Value = nil // its checksum is right, or err says that it is wrong
	if err != nil {
		judged.Damage = err.Error()
		c.delivery.Record(&judged, nil)
		return Event{}, false
	}
	tx, known := c.journal.lookup(event.Tx)
	want := &delivery.Event{
		Aggregate: event.Aggregate, Seq: event.Seq, Tx: event.Tx, Fate: tx.fate,
		Topic: r.Topic, Key: event.Aggregate, Headers: event.Headers(),
	}
	if !known || event.Run != c.run {
		want.Fate = delivery.Unwritten
	} else if aggregate, seq, ok := tx.row(event.Index); !ok || aggregate != event.Aggregate || seq != event.Seq || event.Count != tx.rows {
		judged.Damage = fmt.Sprintf("row %d of the transaction, of %d rows, is %s/%d", event.Index, tx.rows, aggregate, seq)
	}
	outcome := c.delivery.Record(&judged, want)
	if outcome == delivery.Refused {
		return event, false
	}
	c.repeats.judge(want, r, outcome)
	if outcome.First() && outcome != delivery.Late && tx.begun.After(c.fresh[r.Topic]) {
		c.fresh[r.Topic] = tx.begun
	}
	return event, true
}

// Fault notes that something was broken, at a time not before that of the last
// fault. explain says how many duplicates that explains by now; it is called
// from Record and until the next Fault. Nil: none. Before the next Fault a record
// of a transaction that was begun after this one should have been seen: only then
// are its consequences known.
func (c *Checker) Fault(name string, at time.Time, explain func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats.fault(name, at, explain)
}

// Faults returns what was noted, with the duplicates counted so far.
func (c *Checker) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.repeats.faults); n > 0 {
		c.repeats.faults[n-1].update()
	}
	return slices.Clone(c.repeats.faults)
}

// Progress is how far the records have come.
type Progress struct {
	Records   int // how many were read
	Rows      int // different events among them
	Producers int // how many wrote them
}

// Progress returns how far the records have come.
func (c *Checker) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.delivery.Counts()
	return Progress{Records: counts.Records, Rows: counts.Events, Producers: len(c.repeats.births)}
}

// Behind returns the topics that have received no record of a transaction that began after an instant.
func (c *Checker) Behind(since time.Time, topics ...string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return c.fresh[topic].After(since) })
}

// Fresh returns when the newest transaction began of which a topic has received a record.
func (c *Checker) Fresh(topic string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh[topic]
}

// Violations returns the first violations found so far and the number of all.
// Before Finish, a Gap among them may still turn out to be OutOfOrder.
func (c *Checker) Violations() (first []Violation, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.delivery.Violations()
	if c.end != nil {
		found = c.end
	}
	for _, v := range found.First {
		tx, _ := c.journal.lookup(v.Tx)
		first = append(first, Violation{Violation: v, LSN: tx.commitLSN})
	}
	first = append(append(first, c.fence.found.first...), c.repeats.found.first...)
	return first, found.All + c.fence.found.all + c.repeats.found.all
}

// Finish checks what can be known at the end only: that everything committed
// has come, and that the last record of each aggregate is its newest. By then
// every transaction must be resolved and every record handed over.
func (c *Checker) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.delivery.Finish(c.journal.transactions(), math.MaxInt) // repeats judges the duplicates
	for _, tx := range c.journal.Unresolved() {
		end.Add(delivery.Violation{Kind: Unresolved, Tx: tx, Detail: "nobody has told how the transaction ended"})
	}
	c.end = end
}

// transactions returns what was written, in the order in which it was begun.
func (j *Journal) transactions() iter.Seq[delivery.Transaction] {
	return func(yield func(delivery.Transaction) bool) {
		for _, id := range j.inOrder() {
			e, _ := j.lookup(id)
			if !yield(delivery.Transaction{ID: id, Fate: e.fate, Spans: e.spans}) {
				return
			}
		}
	}
}
