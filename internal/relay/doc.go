// Package relay joins the stages: it runs one session after another, from a
// replication slot to Kafka, until it is told to stop or meets something only a person can
// mend.
//
// A session is three stages, each on its own goroutine, and one value that flows back:
//
//	replication.Stream ──batches──▶ publish: decoder, route ──records──▶ sink.Producer
//	        ▲                                                                 │ outcomes
//	        └──────────── Confirmed() ◀── checkpoint.Tracker ◀────────────────┘
//
// Stages stop in the order data flows, each ending the next: reading ends, what was read is
// published, what was published gets its outcome, and only then the position reached is
// reported once more and the connection closed. So a lost source connection costs no
// duplicate, and a clean stop leaves none behind.
//
// Beside them a watcher reads the catalog: what the publication, its tables and the slot
// cease to deliver is not in the stream. It ends the session when rows are left out, and
// warns before that where it can.
//
// What outlives a session is the position it confirmed, valid for the same server, timeline
// and slot only, and how much of a transaction that was cut had been acknowledged.
//
// There is one retry loop, around the session. Retries towards Kafka live in sink. Which
// errors end the process, and with which exit code, is said in one table in errors.go.
//
// The words slot, LSN and confirmed position are those of
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html.
package relay
