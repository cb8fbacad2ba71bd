// Package route turns one decoded outbox row into one Kafka record.
//
// It promises that the bytes of the row reach the record unchanged: key and payload
// are the column's own text, bytea is its raw bytes, JSON is never parsed and printed
// again. What cannot become a record is a [*RowError] that names the row and the
// reason; a table that lacks a configured column is a [*ColumnError], found before the
// first record of that table.
//
// A Router is used by the one goroutine that decodes the stream. It keeps one plan per
// relation (which column sits where), made again when the stream announces a changed
// definition, so a row costs no look-up by name and no allocation of its own.
//
// The record:
//
//	topic      Config.Topic with the row's columns filled in
//	partition  the column placed as partition, else left to the producer's partitioner
//	key        the key column; SQL NULL is a null key
//	value      the payload column; SQL NULL is a null value (a tombstone)
//	headers    id, eventType, the members of the headers column, placed columns, position
//	timestamp  the transaction's commit time
//
// The rules for topic names are Kafka's: org.apache.kafka.common.internals.Topic.
package route
