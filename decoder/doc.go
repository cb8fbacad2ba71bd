// Package decoder parses the messages of PostgreSQL's logical decoding output
// plugin pgoutput, protocol version 1, in text or binary format.
//
// A [Decoder] decodes one replication session. [Decoder.Decode] takes each
// message of the session in order and returns an [Output]: [Begin], [Commit],
// [Relation], [Insert], [Update], [Delete], [Truncate], [Type], [Origin] or
// [LogicalMessage]. The Decoder remembers the relations that the server has
// described, and whether a transaction is open. It does no I/O, and one
// goroutine uses it.
//
// # Checks
//
// For any bytes, Decode returns an Output or an [*Error]. It never panics, and the
// memory that it allocates is bounded by the length of the message, whatever counts
// and lengths the message claims. It skips nothing:
//
//   - A message that is truncated or has trailing bytes is an error.
//   - An unknown message type, flag or value format is an error.
//   - A row must have as many columns as the relation that it names.
//   - A row must be inside a transaction, transactions must not overlap, and a
//     Commit must repeat the commit LSN of its Begin. Otherwise no position
//     could be confirmed.
//
// # Memory
//
// Decode reuses its outputs, and values are slices of the message. It allocates
// only for relation definitions, and for a name that differs from the previous
// one.
//
// # Source
//
// Message formats:
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
// Message flow:
// https://www.postgresql.org/docs/current/protocol-logical-replication.html.
package decoder
