// Package owner decides whether this process may send, and runs what sends.
//
// A [Session] is one replication connection that holds the slot. An ownership is the time during which this process owns the position
// store, over any number of sessions. It has the Tracker with the records in flight, the writer that waits for their outcomes, and the
// pump. [Owner.TakeOver] decides for each session whether the ownership continues or another one starts; takeover.go says how. A
// fence keeps the writer from sending while no session holds the slot.
//
//	takeover ──▶ open, begin ──▶ Owner ──▶ ownership ──▶ session ──▶ fence
//
// The goroutine of the relay's Run uses an Owner and runs the pump. Each session has a goroutine that reads from the stream, and, in
// RunSession, one for the watcher. An ownership has five goroutines: for the writer, the position writer, the log of dead letters, the check
// of the broker, and the releaser. They end with it: drain and abandon wait for the writer, and stop waits for the others.
//
// The package does not import internal/relay, which opens the sink, reads the catalog, and retries.
package owner
