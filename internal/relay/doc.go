// Package relay joins the stages: it runs one session after another, from a replication slot to a
// broker, until it is stopped or an error occurs that only a person can fix.
//
// A session is three stages, each on its own goroutine, and one value that flows back:
//
//	replication.Stream ──batches──▶ pump: decoder, encode ──records──▶ sink.Writer
//	        ▲                                                              │ outcomes
//	        └── positionWriter ◀── Confirmed() ◀── checkpoint.Tracker ◀────┘
//
// Stages stop in the order data flows, each ending the next: reading ends, the pump sends what was
// read, the writer waits until everything sent has an outcome. Only then the session writes and
// confirms the position reached and closes the connection. So a lost source connection causes no
// duplicates, and a clean stop leaves none behind.
//
// Beside them a watcher reads the catalog, since the stream does not say what the publication, its
// tables and the slot cease to deliver. It ends the session if rows are left out, and logs a warning
// before that if it can.
//
// Two things outlive a session: the position it confirmed, valid for the same server, timeline and
// slot only, and how many rows of an interrupted transaction were acknowledged.
//
// There is one retry loop, around the session. Retries towards the broker live in the sink. One table
// in errors.go says which errors end the process, and with which exit code.
//
// The words slot, LSN and confirmed position are those of
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package relay
