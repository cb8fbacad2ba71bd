// Package filestore keeps the position record of a relay, and its parked keys, in a file: a [sink.PositionStore] for brokers that have
// none. A change is a new file, which is synced and renamed over the old one while a lock file is locked. So a crash leaves either, and
// the processes of one host do not lose each other's values. Another host does not see the file.
//
// The package starts no goroutine. A method that cannot use the file retries until its context ends; [Store.Stall] says since when.
package filestore
