// Package deadletter reads the dead-letter topic and resends its dead letters.
//
// A dead letter is a record that [encode.ParseDeadLetter] accepts: a record that the broker rejected, with all its fields, or
// a row that could not become a record. A record is resent unchanged. A row becomes a record with the current
// configuration.
//
// The dead-letter topic also stores which dead letters were resent, in resent records. A resent record names its dead
// letter and is in the same partition. So it expires after the dead letter, and every client sees it. Its key is
// unique, so that it replaces nothing in a compacted topic. It is written after the broker has acknowledged the record. After
// a crash before that, or if two clients resend at the same time, a record may be duplicated.
//
// A resent record comes after all records of its key that were sent since.
package deadletter
