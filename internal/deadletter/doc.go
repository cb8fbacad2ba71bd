// Package deadletter reads the dead-letter topic and resends its dead letters.
//
// A dead letter is a record that [encode.ParseDeadLetter] accepts: a record that Kafka rejected, with
// everything it had, or a row that did not become a record. A record is resent as it was; a row
// becomes a record under the present configuration.
//
// The topic itself stores which dead letters were resent, in resent records: each names its dead letter
// and follows it in the same partition. So it expires after the dead letter, disappears with a
// topic that is deleted and re-created, and is there for anybody else who resends. Its key is unique, so
// that it replaces nothing in a compacted topic. It is written when the resent record is
// acknowledged: a crash before that resends the dead letter the next time, and so do two resends at the same time.
//
// A resent record comes behind every record of its key that was sent since.
package deadletter
