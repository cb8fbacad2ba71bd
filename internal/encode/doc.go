// Package encode turns one decoded outbox row into one Kafka record.
//
// By default it promises that the bytes of the row reach the record unchanged: key and payload
// are the column's own text, bytea is its raw bytes, JSON is never parsed and printed
// again. With [Encodings] they are what Kafka Connect's converters make of the values that
// Debezium's connector has for the columns. What cannot become a record is a [*RowError] that
// names the row and the reason; a table that lacks a configured column is a [*ColumnError],
// found before the first record of that table.
//
// A Router is used by the one goroutine that decodes the stream. It keeps one plan per
// relation (which column sits where, and what is made of it), made again when the stream
// announces a changed definition, so a row costs no look-up by name and no allocation of its
// own. Where the stream does not say enough of a column, the plan asks the catalog ([Describe]).
//
// The record:
//
//	topic      Config.Topic with the row's columns filled in, then Config.TopicRules
//	partition  the column placed as partition, else left to the producer's partitioner
//	key        the key column
//	value      the payload column, or an object of it and the columns placed in the envelope
//	headers    Debezium's context, id, eventType, the members of the headers column, placed
//	           columns, position, static ones
//	timestamp  the timestamp column, else the transaction's commit time
//
// Rows come as inserts, as updates that change a row's identity, and as logical messages that
// hold a JSON object.
//
// The rules for topic names are Kafka's: org.apache.kafka.common.internals.Topic. Options,
// their names and what they do are those of Debezium's outbox event router:
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
package encode
