// Package debezium runs Debezium's Postgres connector with its Outbox Event
// Router as a contender of the benchmarks: a Kafka Connect standalone worker of
// its own, from the Maven artifacts of both projects, which are downloaded once
// into the cache of the tests' servers. That needs java (17 or newer) and mvn.
//
// The worker is as a user of Kafka's scripts has it: all compilers, G1, a heap
// of 512 MB to 1 GB. It uses the slot and the publication it is given, reads no
// snapshot, and writes what the relay writes: key and payload as they are in
// the table, with the event's id and type as headers, to the same topics, with
// acks=all.
//
// https://debezium.io/documentation/reference/3.7/connectors/postgresql.html
// https://debezium.io/documentation/reference/3.7/transformations/outbox-event-router.html
package debezium
