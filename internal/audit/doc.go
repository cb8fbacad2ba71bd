// Package audit compares the rows of an outbox table with the records of the topics, and reports
// missing, phantom, duplicate, altered and out-of-order records.
//
// [Run] makes the expected record of each row with the router of the relay, and package delivery judges
// the records. It reads the tables first, then waits until the slot has confirmed all of their rows,
// and then reads the topics. So every row that was read must have its record, and the relay may run
// meanwhile. It writes nothing.
//
// # What it cannot judge
//
// A record without a row is a phantom only if its row cannot have been pruned. An absent record is
// missing only if retention cannot have deleted it. The [Report] counts such rows and
// records separately: NoRow, Expired, Unconfirmed.
//
// The table has the order of insertion, which is the order of commits only if the writers of a key
// exclude each other. If the records of a key are in another order, their commit positions or commit
// times decide.
//
// # Memory
//
// It keeps 33 bytes for each row, 20 for each record of one, and 12 for each row to find and sort them.
package audit
