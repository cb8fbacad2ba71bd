package delivery

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Finish returns all violations, including those that are only known at the end: transactions that were lost
// completely or partly, phantoms among the records in doubt, aggregates whose last record is not their newest
// event, and the duplicates, if there are more than duplicates. The caller must have passed all records.
// Transactions that are still in doubt may be delivered or not.
//
// Finish does not change the Checker; further records may follow.
func (c *Checker) Finish(written iter.Seq[Transaction], duplicates int) *Violations {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.found.clone()
	doubts := maps.Clone(c.doubts)
	for tx := range written {
		if tx.Fate == RolledBack {
			continue
		}
		for _, s := range tx.Sequences {
			if d := (doubt{tx.ID, s.Aggregate}); doubts[d].seq < s.end() {
				delete(doubts, d)
			}
		}
		if tx.Fate != InDoubt {
			c.complete(end, &tx)
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(doubts), doubt.compare) {
		e := &Event{Aggregate: d.aggregate, Seq: doubts[d].seq, Tx: d.tx}
		end.Add(at(Phantom, e, doubts[d].where, "the event turned out not to be committed"))
	}
	if !c.cfg.AnyPartition {
		c.newestLast(end)
	}
	if c.counts.Duplicates > duplicates {
		for _, v := range c.repeated {
			v.Detail += fmt.Sprintf(" of %d, allowed: %d", c.counts.Duplicates, duplicates)
			end.Add(v)
		}
		end.All += c.counts.Duplicates - len(c.repeated)
	}
	return end
}

func (d doubt) compare(other doubt) int {
	if n := strings.Compare(d.aggregate, other.aggregate); n != 0 {
		return n
	}
	return slices.Compare(d.tx[:], other.tx[:])
}

// complete checks that a committed transaction was delivered.
func (c *Checker) complete(end *Violations, tx *Transaction) {
	rows, missing := 0, 0
	var first Event
	var behind *gap // the gap of first; nil: no later event was seen
	for _, s := range tx.Sequences {
		n, seq, g := c.missingOf(s, end)
		if missing == 0 && n > 0 {
			first, behind = Event{Aggregate: s.Aggregate, Seq: seq, Tx: tx.ID}, g
		}
		rows += s.Rows
		missing += n
	}
	if missing == 0 {
		return
	}
	v := at(Lost, &first, Coordinates{}, "none of the %d events came", rows)
	if missing < rows {
		v.Detail = fmt.Sprintf("%d of the %d events came", rows-missing, rows)
		if tx.ID != uuid.Nil {
			v.Kind = Torn
		}
	}
	if behind == nil {
		end.Add(v)
		return
	}
	v.Record = behind.at
	v.Detail += "; the record is the first behind the gap"
	if i := behind.violation; i >= 0 && end.First[i].Tx == uuid.Nil {
		end.First[i] = v // has more details than the Gap
	} else {
		end.Add(v)
	}
}

// missingOf returns the number of missing events of s that may not be missing, and the first of them with its gap. A
// Gap in end with one of these events becomes Lost.
func (c *Checker) missingOf(s Sequence, end *Violations) (n int, first int64, behind *gap) {
	a := c.aggregates[s.Aggregate]
	if a == nil {
		n, first = c.required(s.Aggregate, s.First, s.end()-1)
		return n, first, nil
	}
	for i := range a.missing {
		g := &a.missing[i]
		more, from := c.required(s.Aggregate, max(g.from, s.First), min(g.to, s.end()-1))
		if more <= 0 {
			continue
		}
		if n == 0 {
			first, behind = from, g
		}
		n += more
		if i := g.violation; i >= 0 && end.First[i].Kind == Gap {
			end.First[i].Kind = Lost
		}
	}
	if more, from := c.required(s.Aggregate, max(a.max+1, s.First), s.end()-1); more > 0 {
		if n == 0 {
			first = from
		}
		n += more
	}
	return n, first, behind
}

// newestLast checks that the last record of each aggregate is its newest event, as a compacted topic needs.
func (c *Checker) newestLast(end *Violations) {
	for _, name := range slices.Sorted(maps.Keys(c.aggregates)) {
		if a := c.aggregates[name]; a.last != a.max {
			e := &Event{Aggregate: name, Seq: a.last}
			end.Add(at(Stale, e, a.newest,
				"it is the last record of the aggregate, whose newest event is %d", a.max))
		}
	}
}
