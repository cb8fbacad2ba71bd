// Package fault says what an error means for a relay: the exit code, how long the relay retries, the advice and the next step for the
// operator. One table decides all of that.
//
// It declares the errors of the relay itself, and keeps the latest failures. The stages and the other rooms of the relay declare
// theirs. It does not import internal/relay, which retries and stops as the table says. The command line and check explain errors with it.
//
// Its functions may be called from any goroutine.
package fault
