// Package serverproc provides what a server needs that this program runs as
// its own child for a while: a directory that goes away with us, a process
// that ends with us, a TCP port that stays ours while the server is down, and
// a cache that several of our processes fill once.
//
// With us means however we end: a return, a panic, Ctrl-C, SIGKILL. On Linux
// the kernel tells the child (prctl(2), PR_SET_PDEATHSIG); on every Unix a
// small shell, which survives us, waits for our end of a pipe to close, ends
// what is left and removes the directory.
//
// Its users are package pgserver and package kafkatest. Outside Unix every
// constructor returns [errors.ErrUnsupported].
package serverproc
