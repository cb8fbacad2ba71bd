// Package kafka is the sink for Kafka. It writes records with acks=all and an idempotent producer, in order
// per partition, with a fixed amount of memory.
//
// [Config] is its [sink.Broker]. A client, which [Config.Open] returns as a [sink.Sink], knows the partitions
// and limits of the topics, and has a producer id. A producer is a [sink.Writer] of a client.
// [Config.Inspect] tests what a relay needs of a cluster.
//
//	Send ──▶ open batch of a partition ──▶ sender (one per connection) ──▶ broker
//	                                             ▲                            │
//	             done(seqs, nil) ◀── answer ─────┴────────────────────────────┘
//
// # Guarantees
//
//   - Order. Records of a partition are stored in the order of Send. At most one batch per partition and
//     one request per connection are unacknowledged. A broker handles one request of a connection at a time
//     anyway (https://kafka.apache.org/protocol#protocol_network), and the next batches form meanwhile.
//   - Endless retries. Transient errors are retried for ever, per partition, with the same producer id and
//     sequence number, so that the broker detects duplicates. A partition that fails does not delay another.
//   - Diagnosis. If a broker does not respond for five seconds, the producer connects to it again to find out
//     why. It logs the result once, and once when the broker responds again.
//   - Bounded memory. Send blocks when the number or the size of unacknowledged records reaches its limit.
//   - Privacy. No record is logged, and no key, value or header value appears in a log line or an error.
//
// # Goroutines
//
// One goroutine calls Send and CloseSend, and another one calls Run. Flush may be called from any goroutine.
// Run starts one goroutine per connection, one that renews the producer id, and one that diagnoses silent brokers.
// It returns when all of them have ended. Responses arrive on the reader goroutine of a connection (of package sarama), which never blocks
// and never calls a method of the connection.
//
// # Source
//
// Protocol, error codes and record format: https://kafka.apache.org/protocol, and the KIPs named in comments.
package kafka
