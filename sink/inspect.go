package sink

import "context"

// An Inspector is a [Broker] that can tell whether it is ready for a relay. It is optional.
type Inspector interface {
	// Inspect returns what it has found, in the order in which it is to be shown. It changes nothing at the broker, and a
	// relay may run meanwhile. It returns when ctx ends; a test without a result by then is a [Failed] one.
	Inspect(ctx context.Context, use Use) []Finding
}

// A Use is what a relay uses a broker for.
type Use struct {
	Relay        string        // name of the relay
	Destinations []Destination // of the last rows; empty if no row was read and the names depend on rows
	DeadLetters  string        // destination of dead letters; empty: none
	Positions    string        // name of the position store; empty: none

	// Short asks only for what is cheap to test, and what a relay does not report itself.
	Short bool
}

// A Destination describes the records for a destination, as far as a sample of them says.
type Destination struct {
	Name    string
	Largest int // bytes of key, value and headers of the largest record; 0: no record was read
	Keyless int // number of records without a key
}

// A Finding is the result of one test of an [Inspector].
type Finding struct {
	Condition string // what was tested, in a few words: "connection", "stream", "retention"
	Object    string // what it was tested for, such as a server or a destination, if there may be several
	State     State
	Found     string // one sentence
	Fix       string // a command, a setting or a sentence; empty if State is Met
}

// Findings collect what an [Inspector] finds.
type Findings []Finding

// Met adds that a condition is met.
func (f *Findings) Met(condition, object, found string) {
	*f = append(*f, Finding{Condition: condition, Object: object, State: Met, Found: found})
}

// Doubt adds a finding with the state [Doubt].
func (f *Findings) Doubt(condition, object, found, fix string) {
	*f = append(*f, Finding{Condition: condition, Object: object, State: Doubt, Found: found, Fix: fix})
}

// Failed adds a finding with the state [Failed].
func (f *Findings) Failed(condition, object, found, fix string) {
	*f = append(*f, Finding{Condition: condition, Object: object, State: Failed, Found: found, Fix: fix})
}

// A State says whether a condition is met.
type State int

// The states.
const (
	Met    State = iota
	Doubt        // the relay works, but the operator should know
	Failed       // the relay does not work, or loses its promises
)

// A Compacter is a [Broker] whose destinations may keep only the newest record of each key. It is optional.
type Compacter interface {
	// Compacted returns which of the destinations do. Those about which the user may not ask are not in the result.
	Compacted(ctx context.Context, destinations ...string) (map[string]bool, error)
}
