// Package debezium runs Debezium's Postgres connector with its Outbox Event
// Router as a contender of the benchmarks, in a Kafka Connect standalone worker.
// The Maven artifacts of both projects are downloaded once, into the cache of the
// tests' servers. That needs java (17 or later) and mvn.
//
// The worker has the JVM settings of Kafka's scripts: all compilers, G1, a heap
// of 512 MB to 1 GB. It uses the given slot and publication, reads no snapshot,
// and writes the same records as the relay: the table's key and payload, with the
// event's id and type as headers, to the same topics, with acks=all.
//
// https://debezium.io/documentation/reference/3.7/connectors/postgresql.html
// https://debezium.io/documentation/reference/3.7/transformations/outbox-event-router.html
package debezium
