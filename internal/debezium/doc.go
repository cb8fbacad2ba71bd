// Package debezium reads what a Debezium PostgreSQL connector with the outbox event router
// leaves behind: its configuration, in the forms people keep it in, its stored offsets, and its
// replication slot. [Import] turns the configuration into one of ours and gives a verdict for
// every key; [ParseOffsets] reads the position; [CheckTakeover] says whether the slot can be
// continued; [Plan] prints the way back.
//
// What the keys mean is Debezium's documentation of the connector and the router:
// https://debezium.io/documentation/reference/stable/connectors/postgresql.html and
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html;
// converters, transforms and topic.creation are Kafka Connect's:
// https://kafka.apache.org/documentation/#connect.
//
// Nothing here writes to a server. Secrets are in the configuration that is made and nowhere else:
// no report, error or plan shows one.
package debezium
