// Package debezium imports a Debezium PostgreSQL connector with the outbox event router.
//
//   - [Parse] reads its configuration: Kafka Connect's JSON, properties, environment variables of Debezium
//     Server, or a Strimzi manifest. [Import] converts it to a configuration of ours, with a [Finding] for
//     every key.
//   - [ParseOffsets] reads its stored offsets.
//   - [CheckTakeover] checks whether the relay can continue with its replication slot.
//   - A [Plan] prints how to go back to Debezium.
//
// The package writes to no server. Secrets appear only in the resulting configuration, never in a report, an
// error or a plan.
//
// Keys of the connector and the router:
// https://debezium.io/documentation/reference/stable/connectors/postgresql.html and
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html.
// Converters, transforms and topic.creation: https://kafka.apache.org/documentation/#connect.
package debezium
