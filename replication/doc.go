// Package replication owns the connection on which Postgres streams its write-ahead log.
//
// A [Stream] is one replication session, from [Open] and Start over Run to Close. It reads
// the messages of output plugin pgoutput, protocol version 1, and hands them on unparsed
// and in order, in batches whose memory is reused. It tells the server what is confirmed,
// and it promises:
//
//   - The server is told only what the caller's function confirmed returns, as write, flush
//     and apply position alike, as far as this session has read: the server believes any
//     position and would skip everything below it for ever.
//   - While the caller takes nothing, nothing is read, and positions are still reported:
//     back-pressure does not end the session and does not grow its memory.
//   - A server that shuts down is not kept waiting for what is not confirmed: the session
//     ends. While nothing is read, whoever asks the catalogs has to notice.
//   - A server that has gone silent is noticed within its wal_sender_timeout.
//
// A Stream never decides a position, never parses rows, never reconnects, and never
// creates a slot. It does not read the catalogs: after any end of a stream they say more
// than the error, since a slot that was invalidated and a WAL sender that was terminated
// look alike on the wire.
//
// Whoever reads the catalogs needs the same kind of connection: [Connect] opens one with the
// settings that [Ordinary], [Reading], [Walsender] or [Streaming] return.
//
// Every error that has one of the identities ErrUnreachable to ErrConfig wraps it. They
// are chosen by SQLSTATE, never by the text of a message.
//
// The words are those of
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logical-replication.html.
package replication
