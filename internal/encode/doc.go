// Package encode makes a record from a decoded outbox row.
//
// A [Router], made from a [Config], makes records from inserted rows (Route), from updated rows whose
// identity has changed (RouteUpdate) and from logical messages that have a JSON object (RouteMessage).
// Check tests a table before its first row. One goroutine uses a Router.
//
// # Record
//
//	topic      Config.Topic with the values of columns, then Config.TopicRules
//	partition  the column placed as partition, otherwise the producer's partitioner decides
//	key        the key column
//	value      the payload column, or an object of it and the columns placed in the envelope
//	headers    Debezium's context, id, eventType, members of the headers column, placed columns,
//	           position, static headers
//	timestamp  the timestamp column, otherwise the commit time of the transaction
//
// By default, the bytes of the row reach the record unchanged: key and payload are the text of the
// column, bytea is its raw bytes, and JSON is never parsed and written again. With [Encodings], they
// are the bytes that Kafka Connect's converters write for the values of Debezium's connector.
//
// # Errors
//
// A row that cannot become a record is a [*RowError] with the id of the row and the reason. A table
// that lacks a configured column is a [*ColumnError]. Neither shows values of other columns. Other
// errors are those of [Describe].
//
// # Cost
//
// A Router has one plan per relation, which maps columns to parts of the record. It makes a new plan
// when the definition changes. So a row needs no look-up by name and no allocation. If the stream does
// not say enough about a column, making the plan reads the catalog ([Describe]).
//
// # Source
//
// Options are named after those of Debezium's
// outbox event router:
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
package encode
