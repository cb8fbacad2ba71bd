// Package relay joins the stages: it reads a replication slot and writes to a broker, over one
// replication connection after another, until it is stopped or fails with an error that only a person
// can fix.
//
//	replication.Stream ──batches──▶ pump: decoder, encode ──records──▶ sink.Writer
//	        ▲                                                              │ outcomes
//	        └── positionWriter ◀── Confirmed() ◀── checkpoint.Tracker ◀────┘
//
// A session is one connection that holds the slot. A tenure is the time under one claim of the slot.
// Its pump, Tracker and writer outlive sessions. When a session ends, the fence closes, and the relay
// sends nothing until another session holds the slot. If no other relay can have sent records in
// between, that session reads the records in flight again and the Tracker recognises them. Otherwise
// a new tenure starts at the position record. takeover.go decides which.
//
// On a stop the stages end in the order in which data flows: the pump reads to the end of a
// transaction, the writer waits until every record sent has an outcome, the relay records and
// confirms the position, and closes the connection. So a clean stop causes no duplicates.
//
// Beside them a watcher reads the catalog, since the stream does not say what the publication, its
// tables and the slot cease to deliver. It ends the session if rows are left out, and logs a warning
// before that if it can.
//
// There is one retry loop, around the sessions. The sink retries requests to the broker. One table in
// errors.go says which errors end the process, and with which exit code.
//
// The words slot, LSN and confirmed position are those of
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package relay
