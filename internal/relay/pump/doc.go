// Package pump moves rows from the WAL stream to the writer of the sink, and turns rows and records that cannot be delivered into
// dead letters.
//
//	replication.Batch ──▶ Pump: decoder, encode ──records──▶ Writer
//	                        │ Begin, Next, Commit              │ Ack, Substitute, Divert
//	                        ▼                                  ▼
//	                      checkpoint.Tracker ◀───────────── Outcomes
//
// A [Pump] and its [Outcomes] belong to a tenure, and outlive its sessions. [DeadLetters], [Neighbours], [Skip] and [Progress]
// belong to the process, and outlive tenures.
//
// The package starts no goroutine. One goroutine, that of the session, runs the Pump. The goroutines of the writer call Outcomes,
// which wakes a Pump that waits for acknowledgements. Each of the other types has a lock of its own, but Skip, which only the
// goroutine of the Pump uses while a session runs.
//
// The package knows neither the position record nor who owns it: it does not import internal/relay.
package pump
