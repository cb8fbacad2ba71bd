// Package prune removes outbox rows that have been delivered: row by row, or with the partition
// they are in. It is safe beside the relay, writers and other prunes, and it may be killed at any
// moment. Two prunes of a table take turns with an advisory lock. Any role can hold it, so Run reports
// an error for a table that it has left to the holder.
//
// # Why a removed row was delivered
//
// The slot says up to which position of the log everything is delivered (confirmed_flush_lsn), a
// row does not say at which position it was committed. Three steps, in this order, bring the two
// together:
//
//  1. Take a snapshot. A transaction becomes visible to snapshots after its commit record is in the
//     log (the server's src/backend/access/transam/README, "Interlocking Transaction Begin,
//     Transaction End, and Snapshots"): what the snapshot sees is in the log by now.
//  2. Write a mark to the log, a logical message in a transaction of its own. Its position is behind
//     the commit record of everything that the snapshot sees.
//  3. Wait until the slot has confirmed the mark. Logical decoding delivers in the order of commit
//     records (https://www.postgresql.org/docs/current/logicaldecoding-explanation.html), and the
//     relay confirms a position only when everything before it is acknowledged.
//
// What the snapshot sees is delivered then. Rows are deleted by transactions that use this very
// snapshot, so the server itself keeps them from anything newer: it does not matter what a row
// says about its age or its transaction, nor whether its writer used savepoints, prepared
// transactions or a clock of its own.
//
// A partition is dropped whole, without looking at its rows. Instead it is locked against writers
// first, which waits for those that have written to it, and stays so over the mark and its
// confirmation up to the DROP: nothing is in it that is not in the log before the mark. Whoever comes
// to write to it meanwhile waits for a second or so, and then the partition is kept for them.
//
// The same process must stream from the slot before the mark and after: a slot that is made anew
// begins with a position that confirms nothing. Therefore nothing is removed while no relay runs.
//
// A slot also confirms positions after rows that its relay's publication leaves out. Therefore Run
// rejects a table unless the publication contains all of it, without a row filter: the table, its
// partitioned root, or all its partitions. It checks this before the mark and after its confirmation.
//
// The server cannot tell whether rows were left out earlier: before the slot was created, or while the
// publication was different. Config.OlderThan is the time that you have to resend them.
package prune
