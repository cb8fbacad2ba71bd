// Package kafka is the sink that writes to Kafka: acknowledged by all in-sync replicas, in order
// per partition, without duplicates of its own making, and within a fixed amount of memory.
// [Config] is its [sink.Broker].
//
// A client is a cluster that has been reached once: where its partitions are, what its topics
// accept, and the producer id that makes writes idempotent. A producer is one session's stream of
// records into it.
//
//	Send ──▶ open batch of a partition ──▶ sender (one per connection) ──▶ broker
//	                                             ▲                            │
//	             done(seqs, nil) ◀── answer ─────┴────────────────────────────┘
//
// What it promises:
//
//   - Records of one partition enter its log in the order of Send. There is at most one
//     unanswered batch per partition, and one unanswered request per connection: a broker
//     works on one request of a connection at a time anyway
//     (https://kafka.apache.org/protocol#protocol_network), and batches form while it does.
//   - What may heal is retried for ever, per partition, with the same producer id and
//     sequence number, so that the broker recognises what it already has. One partition in
//     trouble does not hold up another.
//   - A broker that does not answer is asked why after five seconds, over a connection of its
//     own. What it is found to suffer from is logged once, and when it is over.
//   - Unacknowledged records are bounded in number and in memory; Send blocks at the bound.
//   - Nothing is logged per record, and no key, value or header value appears in a log line
//     or an error text.
//
// Who calls what: Send and CloseSend belong to one goroutine, Run to another; Flush may be
// called from any. Run starts one goroutine per connection, and one that asks a broker why it
// does not answer; it returns when all of them have ended. Answers arrive on the connection's
// reader goroutine (of package sarama), which never calls a method of the connection and
// never blocks.
//
// The wire protocol, its codes and its record format are those of
// https://kafka.apache.org/protocol and the KIPs named where they matter.
package kafka
