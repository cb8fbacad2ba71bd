// Package checkpoint turns acknowledgements that arrive in any order into the one
// position that may be confirmed to Postgres.
//
// A [Tracker] is fed with what one replication session reads, in the order it
// is read: Begin, one Next per record, Commit, Keepalive. Sinks acknowledge
// records in any order and from any goroutine. Confirmed is then the position
// up to which nothing is missing:
//
//   - A record is covered by the commit of its transaction. Once every record
//     read up to and including a transaction is acknowledged, the transaction's
//     end LSN is confirmed. Postgres resends a transaction unless its commit
//     record lies before the confirmed position. So the LSN of a row or of the
//     commit record itself would have it resent for ever. Anything past the end
//     LSN can hide the transaction whose commit record follows without a gap.
//   - A keepalive says that everything before its position has been sent. It
//     counts if no transaction was open when it was read, and once every record
//     read before it is acknowledged. One that is read inside a transaction
//     never counts. Keepalives advance the slot of an idle table.
//   - A transaction without records is a position like a keepalive's.
//
// The confirmed position never goes back, and is never anything but the start
// position, the end LSN of a commit or the position of a keepalive.
//
// The package is pure: it has no clock, goroutine, logger or I/O. The order of
// calls is the caller's duty (the decoder has checked it for everything that
// Postgres sent), so a Commit without Begin panics. Positions come from a server
// and never panic: one that is lower than it should be changes nothing.
//
// What Begin, Commit and keepalive positions are:
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
// What Postgres does with the confirmed position, confirmed_flush_lsn:
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html and
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package checkpoint
