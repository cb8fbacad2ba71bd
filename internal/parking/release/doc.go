// Package release sends the dead letters of parked keys to their topics again, in order, when an operator asks for it.
//
// A [Releaser] belongs to an ownership. Run handles requests in one goroutine, which takes Config.Turn to pause whoever sends rows, and
// waits for the acknowledgements of which SignalAck tells it. It does not import internal/relay.
package release
