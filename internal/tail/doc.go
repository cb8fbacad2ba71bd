// Package tail makes records from the rows of a stream and shows them, instead of sending them.
//
// A [Tail] has a temporary slot of its own, and confirms what it has shown. The caller's goroutine shows; one more reads the stream,
// and ends before Run returns.
package tail
