// Package cli holds the verbs of the outbox-cdc command.
//
// [Main] runs one command line and returns the exit code of the process. It writes only to
// the writers it is given, starts nothing that outlives it, and stops when its context is done.
//
// What goes wrong is written once, to standard error, as one block: what happened, where, what
// to do. Its last line names the exit code, the object, the position if there is one, and
// the next step. Exit codes are those of package relay; whatever is wrong with
// the command line or the configuration is 2.
package cli
