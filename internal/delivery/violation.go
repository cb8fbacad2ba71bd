package delivery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A Kind is a promise that was broken.
type Kind string

// The kinds.
const (
	Lost        Kind = "lost"         // a committed transaction of which nothing came
	Torn        Kind = "torn"         // a committed transaction of which a part came
	Gap         Kind = "gap"          // an event came, one before it has not; becomes Lost, Torn or OutOfOrder
	OutOfOrder  Kind = "out of order" // an event came first after a later one of its aggregate
	Phantom     Kind = "phantom"      // a record of nothing that was committed
	Altered     Kind = "altered"      // a record is not what the row says
	Misplaced   Kind = "misplaced"    // an aggregate in two partitions
	Duplicate   Kind = "duplicate"    // more events came again than may
	Stale       Kind = "stale"        // the last record of an aggregate is not its newest
	OffsetOrder Kind = "offsets"      // the reader's mistake: offsets of an aggregate do not rise
)

// A Violation is one broken promise. What is not known is zero.
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

// at returns a violation that a record of e shows.
func at(k Kind, e *Event, where Coordinates, format string, args ...any) Violation {
	return Violation{Kind: k, Record: where, Aggregate: e.Aggregate, Seq: e.Seq, ID: e.ID, Tx: e.Tx, Detail: fmt.Sprintf(format, args...)}
}

// Violations are the first that were found. Nothing new is learnt after a hundred.
type Violations struct {
	First []Violation
	All   int // how many there are
}

const maxViolations = 100

func (vs *Violations) clone() *Violations { return &Violations{slices.Clone(vs.First), vs.All} }

// String describes the first ten, a line each.
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
