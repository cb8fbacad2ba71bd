// Package demo is the program outbox-cdc-demo. It runs the relay with a private Postgres, a broker, a small order service
// that writes to an outbox, and a consumer that checks every record. With an in-process Kafka or NATS server or a receiver of
// webhooks, nothing needs to be installed. Each kind of broker has a file of its own, with a function that opens a [broker].
//
// The order service adds every event to a ledger before it sends COMMIT or ROLLBACK; it rolls some transactions and
// savepoints back on purpose. The consumer compares every record with the ledger: each committed event must arrive, in
// commit order per key, and nothing else. At the end the demo compares the ledger with the rows in the database.
//
// With [Options.Chaos], the relay and a standby are processes of this program (crew.go), which do what outbox-cdc run does. A
// striker kills and freezes them, and cuts their connections through a proxy (chaos.go). The order service and the consumer
// connect past the proxy. The consumer reads to the end of the topics before the result is known.
//
// Latency is the time from sending COMMIT until the consumer has the record, by one clock. The private Postgres does not
// wait for the disk at a commit.
//
// [Run] removes everything that it creates, except the cached Postgres programs.
package demo
