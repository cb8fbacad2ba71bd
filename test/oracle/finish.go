package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Progress is how far the records have come.
type Progress struct {
	Records int       // read
	Rows    int       // different events among them
	Fresh   time.Time // when the youngest transaction of which an event has come was begun
}

// Progress returns how far the records have come.
func (c *Checker) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Progress{Records: c.records, Rows: c.rows, Fresh: c.fresh}
}

// Violations returns the first violations found so far and the number of all.
// Before Finish, a Gap among them may still turn out to be Reordered.
func (c *Checker) Violations() (first []Violation, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations), c.broken
}

// Finish checks what can be known at the end only: that everything committed
// has come, and that the last record of each aggregate is its newest. By then
// every transaction must be resolved and every record handed over. It is called
// once.
func (c *Checker) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tx := range c.journal.inOrder() {
		e, _ := c.journal.lookup(tx)
		switch s := c.seen[tx]; {
		case e.outcome == Committed && s.rowsSeen() < e.rows:
			c.incomplete(tx, &e, s)
		case e.outcome == RolledBack && s != nil:
			c.violation(at(Phantom, s.event, s.first, "the transaction turned out to be rolled back; %d of its %d rows came", s.count, e.rows))
		case e.outcome < Committed:
			c.violation(Violation{Kind: Unresolved, Tx: tx, Detail: "the transaction is " + e.outcome.String()})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.aggregates)) {
		if a := c.aggregates[name]; a.last != a.max {
			c.violation(Violation{
				Kind: Stale, Record: a.lastAt, Aggregate: name, Seq: a.last,
				Detail: fmt.Sprintf("it is the last record of the aggregate, whose newest event is %d", a.max),
			})
		}
	}
}

// rowsSeen returns how many rows of the transaction have come.
func (s *sighting) rowsSeen() int {
	if s == nil {
		return 0
	}
	return s.count
}

// incomplete reports a committed transaction that has not come as a whole. A
// gap that showed it is replaced.
func (c *Checker) incomplete(tx uuid.UUID, e *entry, s *sighting) {
	v := Violation{Kind: Lost, Tx: tx, LSN: e.commitLSN, Detail: fmt.Sprintf("none of the %d rows came", e.rows)}
	index := 0
	if s != nil {
		for s.rows[index/64]&(1<<(index%64)) != 0 {
			index++
		}
		v.Kind, v.Detail = Torn, fmt.Sprintf("%d of the %d rows came, row %d is the first that did not", s.count, e.rows, index)
		v.Record = s.first
	}
	v.Aggregate, v.Seq, _ = e.row(index)
	if a := c.aggregates[v.Aggregate]; a != nil {
		for i := range a.missing {
			g := &a.missing[i]
			if v.Seq < g.from || v.Seq > g.to {
				continue
			}
			v.Record = g.at
			v.Detail += "; the record is the first behind the gap"
			if g.violation >= 0 {
				c.violations[g.violation] = v
				g.violation = -1
				return
			}
		}
	}
	c.violation(v)
}
