// Package sqs is the sink for queues of Amazon SQS and topics of Amazon SNS. It writes records in batches of up to ten,
// several at a time, over package lane, which keeps the order of the records of a key.
//
// [Config] is its [sink.Broker]. A destination is the URL, the ARN or the name of a queue, or the ARN of a topic:
// [ParseDestination]. Both kinds may be FIFO, and then their names end in .fifo.
//
//	Publish ──▶ feed (one per destination) ──▶ batch of up to ten ──▶ SendMessageBatch or PublishBatch
//	                  requests of different lanes      │
//	                        Done(1, nil) ◀── outcome of each entry
//
// # Guarantees
//
//   - Order. In a FIFO queue or topic, the records of a key have one message group, and are stored in the order of Send.
//     A batch has at most one record of a lane, so an entry that fails is not overtaken by a later one of its key. A
//     standard queue or topic stores each record and may deliver them in any order.
//   - Acknowledgement. A record is acknowledged when the response names it as successful. The service has then stored it
//     in several availability zones.
//   - Duplicates. The deduplication id of a record in a FIFO queue or topic is its event id. The service accepts a record
//     that is sent again within five minutes, and does not deliver it twice. A standard queue or topic may deliver a
//     record several times, whichever relay has sent it.
//   - Bytes. The body is the value. Three kinds of values cannot be a body, and the attribute outbox_body says which it
//     is: see [bodyAttribute].
//   - Privacy. No key, value or header value appears in a log line or an error.
package sqs
