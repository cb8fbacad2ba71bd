// Package replay sends rows that are still in an outbox table again: with the same topic, key,
// partition, value and headers as the relay gives them, and one header more.
//
// It reads the table and not the log: neither a slot nor the relay's recorded position is touched, and a
// relay may run beside it. Rows go in the order of their insertion, so the records of a key keep
// theirs; among what the relay sends meanwhile they come late. What the log has and the table
// has not, the transaction's LSN and the time of its commit, a record does not have: its timestamp is the
// row's, if a column tells it.
package replay
