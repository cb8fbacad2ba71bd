// Package serverproc runs servers as temporary child processes. It provides a
// directory and a process that do not outlive this process ([Dir], [Process]), a
// TCP port that remains reserved while the server is down ([Port]), and a cache
// of downloads that several processes share ([Fill]).
//
// The child exits and the directory is removed even if this process exits by a
// panic, Ctrl-C or SIGKILL. On Linux the kernel signals the child (prctl(2),
// PR_SET_PDEATHSIG). On every Unix a small shell outlives this process. It waits
// until this process's end of a pipe is closed, kills the child if it still runs
// and removes the directory.
//
// Packages pgserver and kafkatest use it. On systems other than Unix every
// constructor returns [errors.ErrUnsupported].
package serverproc
