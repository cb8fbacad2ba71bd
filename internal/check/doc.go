// Package check tests everything that a relay needs in Postgres and Kafka, and returns for each condition whether it
// is met and how to fix it. A check may run before a relay starts or beside it.
//
// A check changes nothing: it writes no record, creates no slot and no topic, and its sessions in Postgres are
// read-only. The exception is [Config.Probe], for which it creates a topic, writes to it and deletes it.
//
// Each request has a time limit, and so has the whole check. Postgres and Kafka are checked at the same time. If one
// of them cannot be reached, the conditions of the other are still complete.
//
// Packages catalog and sink read the state of the servers; this package judges it. [definitions] lists the conditions,
// and the documentation is generated from it.
package check
