package delivery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A Kind is a kind of violation.
type Kind string

// The kinds.
const (
	Lost        Kind = "lost"         // no event of a committed transaction was delivered
	Torn        Kind = "torn"         // only a part of a committed transaction was delivered
	Gap         Kind = "gap"          // an event is missing before a later one; becomes Lost, Torn or OutOfOrder
	OutOfOrder  Kind = "out of order" // the first record of an event is after a later event of its aggregate
	Phantom     Kind = "phantom"      // a record of an event that was not committed
	Altered     Kind = "altered"      // a record differs from its row
	Misplaced   Kind = "misplaced"    // an aggregate in two partitions
	Duplicate   Kind = "duplicate"    // more duplicates than allowed
	Stale       Kind = "stale"        // the last record of an aggregate is not its newest event
	OffsetOrder Kind = "offsets"      // error of the caller: offsets of an aggregate do not increase
)

// A Violation is one violation. Unknown fields are zero.
type Violation struct {
	Kind      Kind
	Record    Coordinates // the first record that shows it
	Aggregate string
	Seq       int64 // of the event that is missing, early, altered, …
	ID        string
	Tx        uuid.UUID
	Detail    string
}

// String describes the violation in one line.
func (v *Violation) String() string {
	var b strings.Builder
	b.WriteString(string(v.Kind))
	part := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	if v.Aggregate != "" {
		b.WriteString(" " + v.Aggregate)
	}
	if v.Seq != 0 {
		part("/%d", v.Seq)
	}
	if v.ID != "" {
		part(" id %s", v.ID)
	}
	if v.Tx != uuid.Nil {
		part(" transaction %s", v.Tx)
	}
	if v.Record.Topic != "" {
		part(" record %s", v.Record)
	}
	if v.Detail != "" {
		part(": %s", v.Detail)
	}
	return b.String()
}

// at returns a violation by a record of e.
func at(k Kind, e *Event, where Coordinates, format string, args ...any) Violation {
	return Violation{Kind: k, Record: where, Aggregate: e.Aggregate, Seq: e.Seq, ID: e.ID, Tx: e.Tx, Detail: fmt.Sprintf(format, args...)}
}

// Violations has the first hundred violations, and counts all.
type Violations struct {
	First []Violation
	All   int // total number
}

const maxViolations = 100

func (vs *Violations) clone() *Violations { return &Violations{slices.Clone(vs.First), vs.All} }

// String describes the first ten, one per line.
func (vs *Violations) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations:", vs.All)
	for _, v := range vs.First[:min(10, len(vs.First))] {
		b.WriteString("\n" + v.String())
	}
	return b.String()
}

// Add counts v and returns its index in First, -1 if that is full.
func (vs *Violations) Add(v Violation) (index int) {
	vs.All++
	if len(vs.First) == maxViolations {
		return -1
	}
	vs.First = append(vs.First, v)
	return len(vs.First) - 1
}
