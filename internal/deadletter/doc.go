// Package deadletter reads the dead-letter topic and sends again what lies in it.
//
// A letter is what [route.ParseDeadLetter] takes for one: a record that Kafka has refused, with
// everything it had, or a row that did not become a record. A record is sent again as it was; a row
// is made a record by the configuration of now.
//
// That a letter was sent again is remembered in the topic itself, by a mark: a record behind it in
// the same partition, which names it. So a mark expires after its letter and not before it, goes with
// the topic if that is deleted and made anew, and is there for whoever else sends letters again. Its
// key is its own, so that in a compacted topic it replaces nothing. A letter is marked when the record is
// acknowledged: an end in between sends it once more the next time, and so do two that resend at the same time.
//
// A record that is sent again comes behind everything of its key that was sent since it was put aside.
package deadletter
