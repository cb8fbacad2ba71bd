// Package sink defines the interface between the relay and a message broker. It imports no
// client library. Each broker has its own package, such as sink/kafka, and each passes the
// tests in sinktest. Brokers without partitions share the Writer of sink/lane.
//
//	Broker ──Open──▶ Sink ──NewWriter──▶ Writer          writes records
//	PositionOpener ──OpenPositions──▶ PositionStore      stores the relay's position
//	ReaderOpener ──OpenReader──▶ Reader                  reads destinations
//	   └─OpenDeadLetters──▶ DeadLetters                  reads dead letters
//
// A [Broker] is a configuration, and a [ReaderOpener] if its records can be read back. [Broker.Open]
// contacts the broker for the first time and returns a [Sink], which lives as long as the process, and is a
// [PositionOpener] if the broker stores positions. A
// [Writer] writes a sequence of records; the Sink has at most one at a time. Errors wrap one of [ErrUnreachable] to
// [ErrFatal], which decides what the relay does next.
//
// # Guarantees of a Writer
//
//   - Order. Records with the same key, and records of the same partition, are stored in the
//     order of Send, across retries, reconnects and rejected records.
//   - At least once. The Writer reports a record as acknowledged when the broker has stored
//     it as safely as it is configured to. Until then the Writer resends it.
//   - Endless retries. The Writer retries transient errors with back-off until its context
//     ends. There is no limit on the number of retries and no delivery timeout. A destination
//     that fails does not delay another one, unless the window is full.
//   - Bounded memory. Send blocks while the window is full.
//   - Rejected records. If the broker rejects a record for good, the Writer writes its
//     substitute, or ends with a [*RecordError]. It then writes no later record of the same
//     partition.
//   - Fencing. The Writer writes nothing while the fence is closed. In addition, a broker that
//     orders writers (such as Kafka, with producer epochs) rejects the records of an older one.
//   - Privacy. No key, value or header value appears in an error or a log line.
package sink
