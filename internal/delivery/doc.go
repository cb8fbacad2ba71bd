// Package delivery decides whether the records of a topic are what was committed: nothing lost,
// nothing that was not committed, nothing altered, and the events of each aggregate in commit order.
//
// A [Checker] is given every record together with the [Event] that the record claims to be. The
// caller knows which event that is, from the payload or from a table of ids, and what its record must
// look like. [Checker.Record] judges the record at once; [Checker.Finish] compares everything with
// what the writers committed.
//
// # Numbers
//
// The events of one aggregate are numbered 1, 2, 3, … in commit order, without a gap. So a gap is a
// loss or a wrong order, whatever the order of commits among aggregates was, and a number that has
// come before is a duplicate. The records of an aggregate have to be handed over in the order of their
// offsets.
//
// # Memory
//
// A Checker keeps about 150 bytes an aggregate, a gap for each run of events that has not come although
// a later one has, and an entry for each transaction and aggregate that was in doubt when its record
// came. It keeps nothing else of events and nothing of payloads.
//
// A Checker has no clock, no I/O and no goroutine. Any goroutine may call it.
package delivery
