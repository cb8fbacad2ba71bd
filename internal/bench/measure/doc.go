// Package measure measures programs that carry rows from an outbox table to Kafka: from outside, as child
// processes, side by side over the same rows on the same servers.
//
// A [Workbench] makes a schema with an outbox table, a publication and topics, all with names of
// their own, on servers that may be somebody's, and removes them. [Workbench.Write] writes a
// [Backlog] into the log; every [Backlog.Drain] then lets one [Contender] empty a copy of the same
// slot, so that all of them read the same bytes. [Workbench.Latency] writes at a fixed rate whatever
// the contender does, [Workbench.StartUp] and [Workbench.Idle] say what starting and waiting cost.
//
// Whatever is measured is checked in the same run: an independent consumer knows every row and
// counts what is lost, repeated, out of order or altered. A figure without its [Verdict] is worth
// nothing.
//
// Nothing of the relay is linked into a measurement. Functions block until they are done or
// ctx is, and leave no process behind; a Workbench is used by one goroutine at a time.
package measure
