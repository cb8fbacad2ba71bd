package sink

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Inspector is a [Broker] that can tell whether it is ready for a relay. It is optional.
type Inspector interface {
	// Conditions returns what Inspect tests, in the order in which it is to be shown.
	Conditions() []Condition

	// Inspect returns what it has found about these conditions, in any order. Without Probe, it changes nothing at
	// the broker. A relay may run meanwhile. It returns when ctx ends; a test without a result by then is a [Failed] one.
	Inspect(ctx context.Context, use Use) []Finding
}

// A Condition describes what an [Inspector] tests.
type Condition struct {
	Name string // in a few words, such as "connection", "stream" or "retention"

	// Object is what the condition is tested for each of, such as "server" or "topic", if there may be several. The findings
	// about one object are shown together. Empty: it is tested once.
	Object string

	Met   string // what is true if the condition is met: one or more sentences in Markdown
	Short bool   // it is also tested if [Use.Short] is set
}

// A Use is what a relay uses a broker for.
type Use struct {
	Relay        string        // name of the relay
	Destinations []Destination // of the last rows; empty if no row was read and the names depend on rows
	DeadLetters  string        // destination of dead letters; empty: none
	Parks        bool          // dead letters of parked keys are read back, however late
	Positions    string        // name of the position store; empty: none

	// Short asks only for what is cheap to test, and what a relay does not report itself.
	Short bool

	// Probe has Inspect write to a place of its own at the broker, and remove that, to find out whether the broker rejects
	// what an older relay sends. Removing it may take a request more after ctx has ended.
	Probe bool

	Limits Limits
}

// Limits are the time limits of an inspection.
type Limits struct {
	Request time.Duration // of one request
	Whole   time.Duration // of all of them; the context ends then
}

// Ask calls question with the time limit of one request. If question fails because of a limit, or there is no time left for it, the
// error is a [*LimitError].
func (l Limits) Ask(ctx context.Context, question func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.Request)
	defer cancel()
	var err error
	if ctx.Err() == nil {
		err = question(limited)
	}
	switch {
	case ctx.Err() != nil:
		return &LimitError{fmt.Errorf("unknown: the time limit of %s was over", l.Whole), "fix what does not respond above, or run check with a longer --timeout"}
	case err != nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return &LimitError{fmt.Errorf("no response within %s: %w", l.Request, err), "find out what blocks the server, or run check with a longer --timeout"}
	}
	return err
}

// A LimitError says that there was no response within a time limit. It is an [Advised] error.
type LimitError struct {
	err    error
	advice string
}

// Error says which limit it was.
func (e *LimitError) Error() string { return e.err.Error() }

// Unwrap returns the error of the request, if it was made.
func (e *LimitError) Unwrap() error { return errors.Unwrap(e.err) }

// Advice returns what to do.
func (e *LimitError) Advice() string { return e.advice }

// A Destination describes the records for a destination, as far as a sample of them says.
type Destination struct {
	Name    string
	Largest *Record // the record with the largest [Record.Size]; nil: no record was read
	Keyless int     // number of records without a key
}

// A Finding is the result of one test of an [Inspector].
type Finding struct {
	Condition string // name of the [Condition]
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

// A Separator is a [Broker] whose users can be limited to some destinations. It is optional.
type Separator interface {
	// Separate returns the commands that grant the user of a relay what it needs, and no more: destinations with a prefix, for
	// which the commands have a placeholder, those of its own, and its place in the position store.
	Separate(use Use) string
}

// A Compacter is a [Broker] whose destinations may keep only the newest record of each key. It is optional.
type Compacter interface {
	// Compacted returns which of the destinations do. Those about which the user may not ask are not in the result.
	Compacted(ctx context.Context, destinations ...string) (map[string]bool, error)
}
