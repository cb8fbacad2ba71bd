package oracle

import (
	"time"
)

// A Fault is a time from which events may be repeated, by producers that appear
// before the next one.
type Fault struct {
	Name       string
	At         time.Time
	Explained  int // repetitions that the fault explains, as far as is known now
	Duplicates int // repetitions seen

	explain func() int // nil: Explained is final
}

// Fault notes that something was broken, at a time not before that of the last
// fault. explain says how many repetitions that explains by now; it is called
// from Record and until the next Fault. Nil: none. Before the next Fault a record
// of a transaction that was begun after this one should have been seen: only then
// are its consequences known.
func (c *Checker) Fault(name string, at time.Time, explain func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.faults); n > 0 {
		c.faults[n-1].settle()
		c.faults[n-1].explain = nil
	}
	c.faults = append(c.faults, Fault{Name: name, At: at, explain: explain})
}

func (f *Fault) settle() {
	if f.explain != nil {
		f.Explained = f.explain()
	}
}

// Faults returns what was noted, with the repetitions counted so far.
func (c *Checker) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.faults); n > 0 {
		c.faults[n-1].settle()
	}
	return append([]Fault(nil), c.faults...)
}

// duplicate counts a repetition for the fault that caused it.
func (c *Checker) duplicate(a *aggregate, e Event, r *Record) {
	i := c.cause(a, e, r)
	if i < 0 {
		c.violation(at(Duplicate, e, r.Coordinates, "nothing was broken before it"))
		return
	}
	f := &c.faults[i]
	f.settle()
	f.Duplicates++
	if f.Duplicates > f.Explained {
		v := at(Duplicate, e, r.Coordinates, "repetition %d after fault %d, %s, which explains %d", f.Duplicates, i, f.Name, f.Explained)
		v.At = r.Seen
		c.violation(v)
	}
}

// cause returns the fault because of which an event is repeated, -1 for none.
// That is the one after which its producer appeared, for a producer writes an
// event once; however late its record is seen, and whatever was broken since.
// What an older producer still had under way and a newer one has written before
// it is due to the newer one.
func (c *Checker) cause(a *aggregate, e Event, r *Record) int {
	if r.Producer.ID < 0 {
		return c.lastFault(r.Seen)
	}
	producer := r.Producer
	for _, newer := range a.runs[a.find(producer)+1:] {
		if newer.last >= e.Seq && c.births[newer.producer] > c.births[producer] {
			producer = newer.producer
		}
	}
	return c.births[producer]
}

// appears notes after which fault a producer was seen first.
func (c *Checker) appears(p Producer, seen time.Time) {
	if _, known := c.births[p]; !known {
		c.births[p] = c.lastFault(seen)
	}
}

// lastFault returns the last fault not after a time, -1 for none.
func (c *Checker) lastFault(t time.Time) int {
	i := len(c.faults) - 1
	for i >= 0 && t.Before(c.faults[i].At) {
		i--
	}
	return i
}
