// Package catalog reads what Postgres' catalogs say about the publication, the slot, the tables
// and the server of a relay, and creates and drops publication and slot.
//
// [Inspect] reads them over a connection of its own, and [State.Verify] says whether a stream
// over them can deliver. An [Observer] reads them again and again beside a stream, and a
// [History] says what has changed: that a table has left the publication, or that the server
// is about to remove WAL the slot needs, is nowhere in the stream. A [Surveyor] asks what
// decides whether a relay will deliver before it runs. [Diagnose] says why a stream did not
// start.
//
// [Setup] and [Drop] create and drop publication and slot. A [Copy] and [Rows] read rows of the
// tables as the stream would print them.
//
// Errors have the identities of package replication, chosen by SQLSTATE and by catalog, and
// one more: [ErrSelection].
package catalog
