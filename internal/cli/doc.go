// Package cli holds the verbs of the outbox-cdc command.
//
// [Main] runs one command line and returns the exit code of the process. It writes only to
// the writers it is given, starts nothing that outlives it, and stops when its context is done.
package cli
