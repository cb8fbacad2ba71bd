// Package check looks at everything a relay needs on both sides, before it is started or while it
// runs, and says of each condition whether it is met, and if not, what mends it.
//
// It writes nothing: no record, no slot, no topic, and its sessions in Postgres are read-only. The
// exception is [Config.Probe], for which it creates a topic, writes to it and deletes it.
//
// It is bounded in time, each question by itself and all of them together. Both sides are looked at
// at once; what cannot be reached on one of them hides nothing of the other.
//
// What can be asked is told by packages replication and sink; what it means is decided here. The
// conditions are listed in [definitions], which the documentation is made from.
package check
