// Package replication reads Postgres' write-ahead log from a logical replication slot.
//
// A [Stream] is one replication session. [Open] connects and identifies the server,
// [Stream.Start] sends START_REPLICATION, [Stream.Run] reads until the session ends, and
// [Stream.Close] confirms the last position and closes the connection. Run sends the
// messages of output plugin pgoutput, protocol version 1, to a channel: unparsed, in
// order, in batches whose memory is reused.
//
// # Guarantees
//
//   - A Stream confirms only positions that the caller returns from its function
//     confirmed, and only as far as this session has read. Write, flush and apply position
//     of a status update are always the same. Postgres checks no position: it would remove
//     WAL that it still has to send.
//   - While the caller does not receive, the Stream does not read, and still sends status
//     updates. Back-pressure neither ends the session nor uses more memory.
//   - When Postgres shuts down, the session ends. Postgres does not wait for unconfirmed
//     positions. While the Stream does not read, it cannot notice a shutdown; the caller
//     has to watch the catalog.
//   - A server that no longer responds is detected within its wal_sender_timeout, or
//     within 10 s if that is shorter.
//
// A Stream does not compute positions, parse rows, reconnect or create slots. It does not
// read the catalogs either. After a session has ended, the caller should: an invalidated
// slot and a terminated WAL sender look the same on the wire.
//
// # Other connections
//
// [Connect] opens a connection with the settings that [Ordinary], [Reading], [Walsender] or
// [Streaming] return. Code that reads catalogs or rows uses them too, so that the session
// settings are the same everywhere.
//
// # Errors
//
// An error with a known cause wraps one of [ErrUnreachable] to [ErrConfig]. The SQLSTATE
// decides which one. If several causes share a SQLSTATE, the name of the server function
// or the untranslated part of its message tells them apart.
//
// # Source
//
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logical-replication.html.
package replication
