// Package rows makes records of rows that do not come from a replication stream: rows that are read from a table, and rows that are
// in dead letters. The records are those that the relay would send. Nothing in it is used by two goroutines at a time.
package rows
