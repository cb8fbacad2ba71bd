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

// A Record is a record that a reader has read. The Checker does not retain its slices.
type Record struct {
	delivery.Record
	Producer Producer
	Seen     time.Time // when the reader read it
	Released bool      // an operator's release has sent it, with a producer of its own, and may send it again
}

// A Checker compares records with a [Journal]. Every event must arrive exactly once, unless a fault
// explains duplicates (see Fault).
type Checker struct {
	run      string
	journal  *Journal
	delivery *delivery.Checker

	mu      sync.Mutex
	repeats repeats
	fence   fence
	fresh   map[string]time.Time // by topic: see Fresh
	end     *delivery.Violations // nil before Finish
}

// NewChecker returns a Checker for one run of writers. If events may be missing, keys may be parked: then other
// producers send events of a key in between.
func NewChecker(run string, j *Journal, cfg delivery.Config) *Checker {
	return &Checker{
		run: run, journal: j, delivery: delivery.New(cfg), repeats: newRepeats(cfg.Missing != nil),
		fence: fence{partitions: make(map[place]*writings)}, fresh: make(map[string]time.Time),
	}
}

// ExplainRows makes f say whether a row may be a duplicate, for a broker whose records have no producer identity: a
// duplicate may come long after the fault that caused it. f is called once for each duplicate. The numbers of [Checker.Fault]
// do not count then. Call it before the first record.
func (c *Checker) ExplainRows(f func(aggregate string, seq int64) bool) {
	c.repeats.mayRepeat = func(key rowKey) bool { return f(key.aggregate, key.seq) }
}

// Record checks one record. The caller must pass the records of a partition in the
// order of their offsets. Record returns the event of the record, if it has one.
func (c *Checker) Record(r *Record) (Event, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats.appears(r.Producer, r.Seen)
	if !r.Released {
		c.fence.judge(r)
	}
	event, err := ParsePayload(r.Value)
	judged := r.Record
	judged.Value = nil // the checksum of the payload replaces the comparison
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
	if !r.Released {
		c.repeats.judge(want, r, outcome)
	}
	if outcome.First() && outcome != delivery.Late && tx.begun.After(c.fresh[r.Topic]) {
		c.fresh[r.Topic] = tx.begun
	}
	return event, true
}

// Appears tells of a record of a topic that another Checker reads: its producer explains duplicates by the last fault before
// its first record in any topic.
func (c *Checker) Appears(p Producer, seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats.appears(p, seen)
}

// Fault records a fault. at must not be before the time of the last fault. explain
// returns how many duplicates the fault explains so far; nil means none. The
// Checker calls explain until the next Fault. Before the next Fault, the caller
// should wait for a record of a transaction that began after this fault. The
// duplicates that this fault causes are only known then.
func (c *Checker) Fault(name string, at time.Time, explain func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repeats.fault(name, at, explain)
}

// Faults returns the faults and the duplicates counted so far.
func (c *Checker) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.repeats.faults); n > 0 {
		c.repeats.faults[n-1].update()
	}
	return slices.Clone(c.repeats.faults)
}

// Progress counts the records that a Checker has received.
type Progress struct {
	Records   int // number of records
	Rows      int // number of different events among them
	Producers int // number of producers that wrote them
}

// Progress returns the counts so far.
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

// Fresh returns when the newest transaction began whose record a topic has received.
func (c *Checker) Fresh(topic string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh[topic]
}

// Violations returns the first violations found so far and the total number.
// Before Finish, a Gap among them may still become OutOfOrder.
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

// Finish makes the checks that are only possible at the end. Every committed event
// must be in the topics. The last record of each aggregate must be its newest
// event. Before Finish, every transaction must be resolved, and the caller must
// have passed every record to Record.
func (c *Checker) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.delivery.Finish(c.journal.transactions(), math.MaxInt) // repeats checks the duplicates
	for _, tx := range c.journal.Unresolved() {
		end.Add(delivery.Violation{Kind: Unresolved, Tx: tx, Detail: "nobody has told how the transaction ended"})
	}
	c.end = end
}

// transactions returns the transactions in the order of the calls of Begin.
func (j *Journal) transactions() iter.Seq[delivery.Transaction] {
	return func(yield func(delivery.Transaction) bool) {
		for _, id := range j.inOrder() {
			e, _ := j.lookup(id)
			if !yield(delivery.Transaction{ID: id, Fate: e.fate, Sequences: e.sequences}) {
				return
			}
		}
	}
}
