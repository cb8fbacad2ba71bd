// Package checkpoint computes the position that may be confirmed to Postgres, and
// defines the position record that survives a restart.
//
// # Tracker
//
// A [Tracker] knows what is in flight. The reader of the replication stream reports
// what it reads, in order: Begin, one Next per record, Commit, Keepalive. The sink
// acknowledges records in any order, from any goroutine. [Tracker.Confirmed] returns
// the position before which every record is acknowledged:
//
//   - A transaction is confirmed when all of its records, and all earlier ones, are
//     acknowledged. The position is then its end LSN. Postgres resends a transaction
//     unless its commit record starts before the confirmed position. So the LSN of a
//     row, or of the commit record itself, would have Postgres resend the transaction
//     for ever. A position after the end LSN could lose the next transaction, because
//     its commit record may start exactly at the end LSN.
//   - A keepalive says that Postgres has sent everything before its position. It
//     counts once every record read before it is acknowledged, but only if no
//     transaction was open when it was read. Keepalives let the slot of an idle
//     table advance.
//   - A transaction without records counts like a keepalive at its end LSN.
//
// The confirmed position never decreases. It is always the start position, the end
// LSN of a transaction or the position of a keepalive.
//
// # Position record
//
// A [Position] is the confirmed position with the server, timeline and slot that it
// is valid for, in the JSON that the relay stores outside of Postgres.
// [Position.Continue] compares the record with the slot that a new session finds. It
// returns where the session starts, or a [*GapError] if rows may be missing.
//
// # Errors and panics
//
// The package is pure: it has no clock, goroutine, logger or I/O. Calls in the wrong
// order, such as a Commit without a Begin, are bugs of the caller and panic. LSNs come
// from a server and never panic: one that is lower than the last has no effect.
//
// # Source
//
// Begin, Commit and keepalive positions:
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
// The confirmed position, confirmed_flush_lsn:
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html and
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package checkpoint
