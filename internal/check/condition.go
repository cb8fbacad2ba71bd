package check

import (
	"cmp"
	"slices"
)

// A State is whether a condition is met.
type State string

// The states.
const (
	Met    State = "ok"
	Doubt  State = "warning" // the relay works, but the operator should know
	Failed State = "fails"
)

// The groups of conditions.
const (
	Configuration = "configuration"
	Source        = "source"
	Sink          = "sink"
	Takeover      = "takeover"
)

// A Condition is the result of one test. Its JSON format is stable; later versions may add members.
type Condition struct {
	Group  string `json:"group"`
	Name   string `json:"condition"`
	Object string `json:"object,omitempty"` // the table, broker or topic, if there may be several
	State  State  `json:"state"`
	Found  string `json:"found"`         // one sentence
	Fix    string `json:"fix,omitempty"` // a statement, a command or a sentence
}

// Count returns the number of conditions that fail.
func Count(conditions []Condition) int {
	n := 0
	for _, c := range conditions {
		if c.State == Failed {
			n++
		}
	}
	return n
}

// A report collects the conditions of one group. It belongs to one goroutine.
type report struct {
	group      string
	conditions []Condition
}

func (r *report) add(c Condition) {
	c.Group = r.group
	r.conditions = append(r.conditions, c)
}

func (r *report) ok(name, object, found string) {
	r.add(Condition{Name: name, Object: object, State: Met, Found: found})
}

func (r *report) warn(name, object, found, fix string) {
	r.add(Condition{Name: name, Object: object, State: Doubt, Found: found, Fix: fix})
}

func (r *report) fail(name, object, found, fix string) {
	r.add(Condition{Name: name, Object: object, State: Failed, Found: found, Fix: fix})
}

// defined returns the conditions in the order of [definitions], with those of one table or topic together. In a short check it
// leaves out those that are not tested at the start.
func (ck *checker) defined(conditions []Condition) []Condition {
	type place struct {
		family, own int
		late        bool
	}
	places := make(map[[2]string]place)
	first := make(map[string]int)
	for i, d := range definitions(ck.Relay.Sink) {
		p := place{i, i, !d.atStart}
		if d.object != "" {
			if _, ok := first[d.object]; !ok {
				first[d.object] = i
			}
			p.family = first[d.object]
		}
		places[[2]string{d.group, d.name}] = p
	}
	of := func(c Condition) place { return places[[2]string{c.Group, c.Name}] }
	conditions = slices.DeleteFunc(conditions, func(c Condition) bool { return ck.short && of(c).late })
	slices.SortStableFunc(conditions, func(a, b Condition) int {
		p, q := of(a), of(b)
		return cmp.Or(cmp.Compare(p.family, q.family), cmp.Compare(a.Object, b.Object), cmp.Compare(p.own, q.own))
	})
	return conditions
}
