// Package position knows how far the relay is: it keeps the position record, confirms positions, and decides where an ownership starts.
//
// A [Store] is where the record is: at the broker, if the broker is a [sink.PositionOpener], in a file of this host, or nowhere. The
// configuration chooses a [Place]. A file is as safe as its file system: another host does not see it, and a relay that starts
// without it does not know what was delivered. A [Writer] writes the record and the parked keys ([ParkedKeys]) to the Store, as its
// owner.
//
// The package starts no goroutine. The relay's own goroutine begins and ends ownerships: it reads the Store, compares it with the server
// (Check), becomes the owner (BeginOwnership), chooses where to start (ChooseStart, StartOwnership), and at the end writes the last
// position (Write). During an ownership, Run writes positions in a goroutine of the ownership, which Confirmed, MarkCopied and Wake wake
// through a channel. The goroutine that releases parked keys calls the ParkedKeys.
//
// Writer.recording is held while the record is written, ParkedKeys.storing while the parked keys are. Both may wait for the store; so
// they are channels, which a context can interrupt. Writer.mu, Store.mu and ParkedKeys.mu protect fields only. Nobody who holds one
// of these waits for another, except that Write and ProveOwner take Writer.mu while they hold recording.
package position
