// Package decoder parses the messages of PostgreSQL's logical decoding output
// plugin pgoutput, protocol version 1, in text or binary format.
//
// A [Decoder] belongs to one replication session: it holds the definitions of
// the relations the server has described and follows the transactions. It is
// given every message of the session in order, from one goroutine, and does no
// I/O.
//
// Whatever the bytes are, Decode returns an [Output] or an [*Error], and
// allocates no more than the bytes account for. It accepts a message only
// complete and without anything behind it. A type, flag or format it does not
// know is an error: nothing is skipped. Rows must fit the relation they name,
// and messages must come in an order from which positions can be confirmed:
// rows inside transactions, transactions one after the other, each ended by the
// Commit that its Begin announced.
//
// Reading costs no allocation: outputs are reused, and their values are slices
// of the message. The exceptions are definitions, and a name that differs from
// the one before.
//
// The formats:
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
// The order:
// https://www.postgresql.org/docs/current/protocol-logical-replication.html.
package decoder
