// Package delivery checks that the records of a topic are the committed events: no event is lost or
// altered, no record is a phantom (of a transaction that was not committed), and the events of each
// aggregate are in commit order. It counts duplicates.
//
// The caller passes every record to [Checker.Record], with the [Event] that the record claims to be, which
// the caller finds by the payload or by a table of ids. Record judges the record immediately.
// [Checker.Finish] compares the result with what the writers committed.
//
// # Numbers
//
// The events of an aggregate are numbered 1, 2, 3, … in commit order. So a gap in the numbers is a loss or
// a wrong order, whatever the order of commits among aggregates, and a repeated number is a duplicate. The
// caller must pass the records of an aggregate in the order of their offsets.
//
// # Memory
//
// A Checker uses about 150 bytes per aggregate, one gap for each range of missing events, and one entry for
// each transaction and aggregate that was in doubt when its record was judged. It keeps no payloads.
//
// A Checker has no clock, I/O or goroutine. Its methods may be called from any goroutine.
package delivery
