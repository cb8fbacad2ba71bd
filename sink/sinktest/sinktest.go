// Package sinktest is the contract of package sink as tests: every broker's package runs it, over
// the wire, against each broker that its tests can have.
package sinktest

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Subject is a broker and what a test can do to it. The suite runs one test at a time.
type Subject interface {
	// Broker returns the broker with a window of so many records. The connections of its sinks
	// are those that faults strike.
	Broker(window int) sink.Broker

	// Destination creates an empty destination, with several partitions if the broker has them,
	// and removes it when the test ends.
	Destination(t *testing.T) string

	// Store returns a name for a position store that does not exist, and removes what is created
	// under it when the test ends.
	Store(t *testing.T) string

	// Read returns every record that a destination holds, each partition in its order.
	Read(t *testing.T, destination string) []sink.StoredRecord

	// Reject changes rec, which holds a key, so that a destination of the Subject rejects it for
	// good. The value keeps its beginning.
	Reject(rec *sink.Record)

	// Hold is a fault during which the broker's answers to writes do not arrive.
	Hold() Fault

	// Faults are all the others that a Writer has to survive. Among them are a connection that
	// breaks before the broker has the whole request, one that breaks before the answer arrives,
	// and an answer that the broker cannot store the records for now.
	Faults() []Fault
}

// A Fault is trouble that strikes writes.
type Fault struct {
	Name string

	// Begin lets the trouble begin. met is closed when a write has met it, and heal ends it.
	Begin func(t *testing.T) (met <-chan struct{}, heal func())
}

// Run runs the suite. No error and no log line may show a key, a value or the value of a header:
// every test looks.
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
		{"identities", testIdentities},
		{"a rejected record ends the Writer", testRejected},
		{"a rejected record has a substitute", testSubstitute},
		{"a rejected substitute ends the Writer", testRejectedSubstitute},
		{"deliveries are reported before outcomes", testDelivered},
		{"positions", testPositions},
		{"positions of several writers", testPositionWriters},
		{"a position write that was given up", testPositionGivenUp},
		{"dead letters", testDeadLetters},
		{"missing destinations", testMissing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
	for _, f := range append(s.Faults(), s.Hold()) {
		t.Run("writing/"+f.Name, func(t *testing.T) { testFault(t, s, f) })
		t.Run("stopped/"+f.Name, func(t *testing.T) { testStopped(t, s, f) })
		t.Run("positions/"+f.Name, func(t *testing.T) { testPositionFault(t, s, f) })
	}
}
