// Package prune removes delivered outbox rows: it deletes rows, and drops partitions in which every row is old. It is
// safe beside the relay, writers and other prunes, and it may be killed at any time. Two prunes of a table take turns
// with an advisory lock. Any role can hold this lock, so Run returns an error for a table that it skipped because of it.
//
// # Why a removed row was delivered
//
// The slot has the position up to which everything is delivered (confirmed_flush_lsn), but a row does not have the
// position of its commit. Three steps, in this order, connect the two:
//
//  1. Take a snapshot. A transaction becomes visible to snapshots only after its commit record is in the WAL (the
//     server's src/backend/access/transam/README, "Interlocking Transaction Begin, Transaction End, and Snapshots").
//     So every row that the snapshot sees is in the WAL.
//  2. Write a mark to the WAL: a logical message in its own transaction. Its position is after the commit record of
//     everything that the snapshot sees.
//  3. Wait until the slot has confirmed the mark. Logical decoding sends transactions in the order of their commit
//     records (https://www.postgresql.org/docs/current/logicaldecoding-explanation.html), and the relay confirms a
//     position only when the broker has acknowledged everything before it.
//
// Then every row that the snapshot sees is delivered. The transactions that delete rows use the same snapshot, so
// Postgres hides newer rows from them. The age of a row, savepoints, prepared transactions and the writer's clock do not
// matter.
//
// Prune drops a partition without reading its rows. It first locks the partition against writers, which waits for those
// that have written to it, and holds the lock until the DROP. So every row in it is in the WAL before the mark. If a
// writer needs the partition meanwhile, it waits for about a second, and then prune keeps the partition.
//
// The same WAL sender must stream from the slot before and after the mark, because the position of a re-created slot
// confirms nothing. So prune removes nothing while no relay is running.
//
// A slot also confirms positions after rows that its relay's publication leaves out. Therefore Run
// rejects a table unless the publication contains all of it, without a row filter: the table, its
// partitioned root, or all its partitions. It checks this before the mark and after its confirmation.
//
// The server cannot tell whether rows were left out earlier: before the slot was created, or while the
// publication was different. Config.OlderThan is the time that you have to resend them.
package prune
