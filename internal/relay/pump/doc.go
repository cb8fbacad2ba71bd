// Package pump moves rows from the WAL stream to the writer of the sink, and turns rows and records that cannot be delivered into
// dead letters.
//
//	replication.Batch ──▶ Pump: decoder, encode ──records──▶ Writer
//	                        │ Begin, Next, Commit              │ Ack, Substitute, Divert
//	                        ▼                                  ▼
//	                      checkpoint.Tracker ◀───────────── Outcomes
//
// A [Pump] and its [Outcomes] belong to an ownership, and outlive its sessions. [DeadLetters], [Neighbours], [Skip] and [Progress]
// belong to the process, and outlive ownerships.
//
// The goroutine of the relay's Run, or of a Tail's, runs the Pump and uses Skip, which has no lock. The goroutines of the writer
// call Outcomes, which wakes a Pump that waits for acknowledgements. DeadLetters, Neighbours and Progress each have a lock and may
// be used by any goroutine. LogNew of DeadLetters needs a goroutine of its own, which the ownership starts. While a release holds
// Config.Turn, the Pump sends nothing.
//
// The package knows neither the position record nor who owns it: it does not import internal/relay.
package pump
