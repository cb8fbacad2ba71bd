// Package sink declares what the relay needs of a broker: how records are written, where the
// relay keeps its position, how dead letters are read, and which errors it decides by. It
// imports no client library. Each broker has a package of its own beside this one, and every
// such package passes the suite in sinktest.
//
//	Broker ──Open──▶ Sink ──NewWriter──▶ Writer          records
//	   │              └─OpenPositions──▶ PositionStore   the relay's position
//	   └─OpenDeadLetters──▶ DeadLetters                  what could not be delivered
//
// What a Writer promises, whatever the broker:
//
//   - Order. Records with equal keys, and records of one partition, enter a destination in the
//     order of Send, across retries, reconnects and rejected records.
//   - At least once. A record is reported as acknowledged only after the broker has stored it
//     as safely as it is configured to. Until then the Writer sends it again.
//   - Retries never end. What may heal by itself is retried with back-off until the context
//     ends. There is no retry count and no timeout for delivery. A destination in trouble does
//     not hold up another one, except through the window.
//   - Bounded memory. Send blocks while the window is full.
//   - A record that the broker rejects for good is replaced by its substitute, or ends the
//     Writer with a [*RecordError]. Nothing later of its partition is written then.
//   - Nothing is written after the fence has closed.
//   - No key, value or header value appears in an error or a log line.
//
// The relay can be the only writer of a key as long as its fence holds; a broker that can refuse
// an older writer by itself (Kafka's producer epochs) does so in addition.
package sink
