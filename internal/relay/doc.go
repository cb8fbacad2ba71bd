// Package relay joins the stages: it reads a replication slot and writes to a broker, over one
// replication connection after another, until it is stopped or an error occurs that only a person can
// fix.
//
//	replication.Stream ──batches──▶ pump: decoder, encode ──records──▶ sink.Writer
//	        ▲                                                              │ outcomes
//	        └── positionWriter ◀── Confirmed() ◀── checkpoint.Tracker ◀────┘
//
// A session is one connection that holds the slot. A tenure is the time under one claim of the slot:
// pump, Tracker and writer, which go on from session to session. When a session ends, the fence
// closes and nothing is sent until another one holds the slot. If nobody else can have sent in
// between, it reads again what is in flight, and the Tracker recognises it; otherwise a new tenure
// begins at the position record. takeover.go decides.
//
// On a stop the stages end in the order data flows: the pump reads to the end of a transaction, the
// writer waits until everything sent has an outcome, the position reached is recorded and confirmed,
// and the connection is closed. So a clean stop leaves no duplicates behind.
//
// Beside them a watcher reads the catalog, since the stream does not say what the publication, its
// tables and the slot cease to deliver. It ends the session if rows are left out, and logs a warning
// before that if it can.
//
// There is one retry loop, around the sessions. Retries towards the broker live in the sink. One table
// in errors.go says which errors end the process, and with which exit code.
//
// The words slot, LSN and confirmed position are those of
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package relay
