package delivery

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Finish returns what was found so far and what can be known at the end only: which of the transactions
// was lost, in whole or in part, which record in doubt was a phantom, whether the last record of each
// aggregate is its newest event, and, if there are more than so many, the duplicates. By then every
// record has to be handed over. A transaction that is still in doubt may have come or not.
//
// Finish changes nothing: more may be written and judged after it.
func (c *Checker) Finish(written iter.Seq[Transaction], duplicates int) *Violations {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.found.clone()
	doubts := maps.Clone(c.doubts)
	for tx := range written {
		if tx.Fate == RolledBack {
			continue
		}
		for _, s := range tx.Spans {
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
			v.Detail += fmt.Sprintf(" of %d, there may be %d", c.counts.Duplicates, duplicates)
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

// complete judges whether a committed transaction has come.
func (c *Checker) complete(end *Violations, tx *Transaction) {
	rows, missing := 0, 0
	var first Event
	var behind *gap // of first; nil: nothing later came
	for _, s := range tx.Spans {
		n, seq, g := c.aggregates[s.Aggregate].missingOf(s, end)
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
		end.First[i] = v // it names more
	} else {
		end.Add(v)
	}
}

// missingOf returns how many events of s have not come, and the first of them with its gap. A Gap in end
// that has some of them is Lost.
func (a *aggregate) missingOf(s Span, end *Violations) (n int, first int64, behind *gap) {
	if a == nil {
		return s.Rows, s.First, nil
	}
	for i := range a.missing {
		g := &a.missing[i]
		from, to := max(g.from, s.First), min(g.to, s.end()-1)
		if from > to {
			continue
		}
		if n == 0 {
			first, behind = from, g
		}
		n += int(to - from + 1)
		if i := g.violation; i >= 0 && end.First[i].Kind == Gap {
			end.First[i].Kind = Lost
		}
	}
	if from := max(a.max+1, s.First); from < s.end() {
		if n == 0 {
			first = from
		}
		n += int(s.end() - from)
	}
	return n, first, behind
}

// newestLast judges what a compacted topic would keep.
func (c *Checker) newestLast(end *Violations) {
	for _, name := range slices.Sorted(maps.Keys(c.aggregates)) {
		if a := c.aggregates[name]; a.last != a.max {
			e := &Event{Aggregate: name, Seq: a.last}
			end.Add(at(Stale, e, a.newest,
				"it is the last record of the aggregate, whose newest event is %d", a.max))
		}
	}
}
