// Package exit has the exit codes of the programs. docs/runbook.md has a section for each from [Source] on.
package exit

// The exit codes. Usage, SlotLost, NoDelivery, BadRecord, Continuity and Fenced need a person; a supervisor must not
// restart the process after them.
const (
	OK         = 0
	Unexpected = 1
	Usage      = 2
	Source     = 10 // Postgres rejects us: credentials, pg_hba.conf, wal_level, privileges
	SlotLost   = 11 // the slot is missing or invalidated
	SlotInUse  = 12 // another process streams from the slot, and wait_for_slot is false
	NoDelivery = 13 // the publication or a table does not deliver rows
	BadRecord  = 14 // a row or record cannot be delivered
	Continuity = 15 // the slot does not continue where the position record ends
	Sink       = 20 // the broker rejects us, or could not be reached at the start
	Fenced     = 21 // at the start, another process kept using the identity of the relay at the broker
)
