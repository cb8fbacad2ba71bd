// Package check tests everything that a relay needs in Postgres and the broker, and returns for each condition whether it
// is met and how to fix it. A check may run before a relay starts or beside it.
//
// A check changes nothing: it writes no record, creates no slot and no destination, and its sessions in Postgres are
// read-only. The exception is [Config.Probe], for which the broker's package writes to a place of its own and removes it.
//
// Each request has a time limit, and so has the whole check. Postgres and the broker are checked at the same time. If one
// of them cannot be reached, the conditions of the other are still complete.
//
// Package catalog reads the state of Postgres, and this package judges it. The package of a broker does both for its servers, see
// [sink.Inspector]. [definitions] lists the conditions, and the documentation is generated from it.
package check
