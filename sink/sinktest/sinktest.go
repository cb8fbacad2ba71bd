// Package sinktest provides the tests that every implementation of package sink must pass. The package
// of each broker runs them over the network, against each broker that its tests can start.
package sinktest

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Subject is a broker that the suite tests, and the faults that the suite can inject. The suite runs
// one test at a time.
type Subject interface {
	// Broker returns the broker with a window of that many records. Faults affect the
	// connections of its sinks.
	Broker(window int) sink.Broker

	// Destination creates an empty destination, with several partitions if the broker has them,
	// and removes it when the test ends.
	Destination(t *testing.T) string

	// Read returns every record of a destination. The records of a partition are in order.
	Read(t *testing.T, destination string) []sink.StoredRecord

	// Reject changes rec, which has a key, so that a destination of the Subject rejects it
	// permanently. It does not change the beginning of the value.
	Reject(rec *sink.Record)

	// Hold is a fault during which the broker's responses to writes do not arrive.
	Hold() Fault

	// Faults are all other faults that a Writer must survive. They include a connection that is
	// lost before the broker has received the whole request, one that is lost before the
	// response arrives, and a retriable error code.
	Faults() []Fault
}

// A Storing Subject is a broker that stores positions: its sinks are [sink.PositionOpener].
type Storing interface {
	Subject

	// Store returns the name of a position store that does not exist. When the test ends, it
	// removes the store that the test has created.
	Store(t *testing.T) string
}

// A Limited Subject says what its broker does not offer. The suite then tests what package sink says for that case.
type Limited interface {
	Limits() Limits
}

// Limits is what a broker does not offer.
type Limits struct {
	NoMissing bool // no destination is missing: the broker creates it, or does not know
	Unordered bool // destinations have no order

	NoNull      bool // a null key, value or header is stored as an empty one
	NoTimestamp bool // timestamps are not stored, or less exactly than in milliseconds

	Slow bool // each record takes long: the suite sends fewer of them

	// Missing is a destination that does not exist. If it is empty, a name without a meaning is used.
	Missing string
}

func limitsOf(s Subject) Limits {
	if l, ok := s.(Limited); ok {
		return l.Limits()
	}
	return Limits{}
}

// A Fault is a fault that affects writes.
type Fault struct {
	Name string

	// Breaks says that it breaks connections. Stat must then count those that replace them.
	Breaks bool

	// Slow says that a Writer waits for a limit of time each time it meets the fault. The suite then begins the fault once in a test.
	Slow bool

	// Begin starts the fault. met is closed when the fault has affected a write. heal ends the
	// fault.
	Begin func(t *testing.T) (met <-chan struct{}, heal func())
}

// rounds returns how often a test begins f.
func (f Fault) rounds() int {
	if f.Slow {
		return 1
	}
	return 3
}

// RunPositions runs the tests of position stores without faults, which need nothing else of the Subject.
func RunPositions(t *testing.T, s Storing) {
	t.Helper()
	t.Run("positions", func(t *testing.T) { testPositions(t, s) })
	t.Run("positions of several keys", func(t *testing.T) { testPositionKeys(t, s) })
	t.Run("owners", func(t *testing.T) { testOwners(t, s) })
}

// runStoring runs the tests of the position stores of a broker.
func runStoring(t *testing.T, s Storing) {
	t.Helper()
	RunPositions(t, s)
	t.Run("an older writer", func(t *testing.T) { testOlderWriter(t, s) })
	t.Run("a position write that was given up", func(t *testing.T) { testPositionGivenUp(t, s) })
	for _, f := range append(s.Faults(), s.Hold()) {
		t.Run("positions/"+f.Name, func(t *testing.T) { testPositionFault(t, s, f) })
	}
}

// Run runs the suite. Every test also checks that no error and no log line contains a key, a value or
// the value of a header.
func Run(t *testing.T, s Subject) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"records arrive unaltered, once and in order", testOrder},
		{"one record is sent on Flush", testFlush},
		{"any goroutine may flush", testFlushAnywhere},
		{"writers follow each other", testWriters},
		{"a full window blocks Send", testWindow},
		{"CloseSend waits for every outcome", testCloseSend},
		{"a closed fence", testFence},
		{"a fence that opens again", testFenceOpens},
		{"a rejected record ends the Writer", testRejected},
		{"a rejected record has a substitute", testSubstitute},
		{"a rejected substitute ends the Writer", testRejectedSubstitute},
		{"records behind a rejected one are diverted", testDiverted},
		{"deliveries are reported before outcomes", testDelivered},
		{"dead letters", testDeadLetters},
		{"missing destinations", testMissing},
		{"readers", testReader},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
	for _, f := range append(s.Faults(), s.Hold()) {
		t.Run("writing/"+f.Name, func(t *testing.T) { testFault(t, s, f) })
		t.Run("stopped/"+f.Name, func(t *testing.T) { testStopped(t, s, f) })
	}
	if storing, ok := s.(Storing); ok {
		runStoring(t, storing)
	} else {
		t.Run("no positions", func(t *testing.T) { testNoPositions(t, s) })
	}
}
