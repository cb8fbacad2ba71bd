// Package measure measures programs that send rows of an outbox table to Kafka. It runs them as child
// processes, with the same rows on the same servers.
//
// A [Workbench] creates a schema with an outbox table, a publication and topics, with unique names because
// the servers may be in use, and drops them at the end.
//
//   - [Workbench.Write] writes a [Backlog] to the WAL. Each [Backlog.Drain] lets one [Contender] drain a copy
//     of the same slot, so that all contenders read the same bytes.
//   - [Workbench.Latency] writes rows at a fixed rate, whatever the contender does.
//   - [Workbench.StartUp] and [Workbench.Idle] measure the cost of starting and of waiting.
//
// Every measurement is also checked: an independent consumer knows all rows and counts lost, duplicate,
// out-of-order and altered records, in a [Verdict].
//
// No code of the relay is linked into the measuring program. Functions block until they are done or ctx is,
// and leave no process behind. One goroutine at a time uses a Workbench.
package measure
