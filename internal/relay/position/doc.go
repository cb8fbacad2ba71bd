// Package position knows how far the relay is: it keeps the position record, confirms positions, and decides where an ownership starts.
//
// A [Store] is where the record is: at the broker, if the broker is a [sink.PositionOpener], in a file of this host, or nowhere. The
// configuration chooses a [Place]. A file is as safe as its file system: another host does not see it, and a relay that starts
// without it does not know what was delivered.
//
// [Positions] has the parts that write to the Store as its owner. Calls run from the first to the last:
//
//	Starter      decides whether and where an ownership starts
//	Writer       writes positions during an ownership; asks the Timeline whether they may be written
//	Recorder     writes the position record
//	ParkedKeys   writes the parked keys
//	Record       is the position record as this process knows it, and what may be confirmed to Postgres
//
// The package starts no goroutine. The relay's own goroutine begins and ends ownerships: it reads the Store, compares it with the server
// (Check), becomes the owner (BeginOwnership), chooses where to start (ChooseStart, StartOwnership), and at the end writes the last
// position (Write). During an ownership, Run writes positions in a goroutine of the ownership, which Confirmed, MarkCopied and Wake wake
// through a channel. The goroutine that releases parked keys calls the ParkedKeys.
//
// Recorder.writing is held while the record is written, ParkedKeys.storing while the parked keys are. Both may wait for the store; so
// they are channels, which a context can interrupt. Record.mu, Store.mu, ParkedKeys.mu and Timeline.mu protect fields. Nobody who holds
// one of these waits for another lock; only the timeline is read from the server meanwhile.
package position
