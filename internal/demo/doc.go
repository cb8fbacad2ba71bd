// Package demo shows the product at work, in one process and on a machine with nothing installed: a
// Postgres, a Kafka-compatible broker, a small order service that writes to an outbox, the relay,
// and a consumer that checks everything it gets.
//
// The check is the point. The service enters every event into a ledger before it sends COMMIT (or
// ROLLBACK: some transactions and savepoints are rolled back on purpose), and the consumer compares
// every record with it. What was committed must arrive, once per key in the order of the commits,
// and nothing else. At the end the ledger is compared with what the database itself says it
// committed.
//
// Latency is counted from the moment COMMIT is sent to the moment the record is in the consumer's
// hands, both read from one clock. The embedded server does not make commits wait for a disk.
//
// [Run] owns everything it starts and leaves nothing behind, cached Postgres programs aside.
package demo
