// Package cli contains the commands of the outbox-cdc program.
//
// [Main] runs one command line and returns the exit code of the process. It writes only to the writers that it is
// given, leaves no goroutine behind, and stops when its context ends.
package cli
