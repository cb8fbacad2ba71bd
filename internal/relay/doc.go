// Package relay connects the stages. A [Relay] reads a replication slot and writes records to a broker. It
// reconnects whenever it loses a connection, until it is stopped or an error occurs that only a person can
// fix.
//
//	replication.Stream ──batches──▶ pump.Pump: decoder, encode ─records▶ sink.Writer
//	        ▲                                                              │ outcomes
//	        └── position.Writer ◀── Confirmed() ◀── checkpoint.Tracker ◀───┘
//
// A session is one replication connection that holds the slot. An ownership is the time during which this
// process owns the position store. Its pump, Tracker and writer outlive sessions. When a
// session ends, the fence closes, and the relay sends nothing until another session holds the slot. If no
// other relay was the owner in between, that session reads the rows in flight again, and the
// Tracker recognises and skips them. Otherwise a new ownership starts at the position record. Package owner
// decides which.
//
// On a stop, the stages end in the order in which data flows: the pump reads to the end of a
// transaction, the writer waits until every record has an outcome, and the relay records the position,
// confirms it and closes the connection. So a clean stop causes no duplicates.
//
// Beside the stream, a watcher reads the catalog, because the stream does not report that a publication,
// a table or the slot no longer delivers rows. It ends the session if rows are left out, and logs a
// warning before that if it can.
//
// There is one retry loop, around the sessions. The sink retries requests to the broker by itself. A
// table in package fault says which errors end the process, and with which exit code.
//
// Slot, LSN and confirmed position are explained in
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package relay
