// Package catalog reads the publication, the slot, the tables and the settings of a Postgres server
// from its catalogs, and creates and drops the publication and the slot.
//
//   - [Inspect] reads a [State], and [State.Verify] checks whether a stream can deliver rows.
//   - An [Observer] reads the State repeatedly while a relay streams. A [History] compares the
//     results: the stream itself does not report that a table was removed from the publication, or
//     that Postgres is about to invalidate the slot.
//   - [Reserve.Judge] decides how close Postgres is to invalidating a slot.
//   - A [Reader] reads what `check` needs: settings, limits, privileges, table definitions.
//   - [Diagnose] finds out why a stream did not start.
//   - [Setup] and [Drop] create and drop the publication and the slot.
//   - A [Copy] and [Rows] read rows of the tables in the same text format as the stream.
//
// Errors wrap those of package replication, which are chosen by SQLSTATE and by the catalogs, or
// [ErrSelection].
package catalog
