// Package serverproc runs servers as temporary child processes. It provides a
// directory and a process that do not outlive this process ([Dir], [Process]), a
// TCP port that remains reserved while the server is down ([Port]), and a cache
// of downloads that several processes share ([Fill]).
//
// The child ends and the directory is removed however this process ends: by a
// return, a panic, Ctrl-C or SIGKILL. On Linux the kernel signals the child
// (prctl(2), PR_SET_PDEATHSIG). On every Unix a small shell, which survives this
// process, waits until this process's end of a pipe is closed, kills what is left
// and removes the directory.
//
// Packages pgserver and kafkatest use it. On other systems than Unix every
// constructor returns [errors.ErrUnsupported].
package serverproc
