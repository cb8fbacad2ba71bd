// Package refill creates the slot of a relay and plans what has to be sent before its stream: the initial copy of the outbox tables,
// or the rows that a lost slot had not delivered.
//
// The initial copy sends the rows that were in the tables when the slot was created, before the
// session handles anything of the stream. The position record says whether a copy is pending, from
// before the slot is created until all rows are acknowledged. If the process crashes in between, the
// next start finds the record and reads all rows again. The writer recognises those that are stored. Rows written
// since the slot was created are then duplicated.
//
// A refill resends the rows that a lost slot had not delivered. It is a copy with a selection: the new
// slot is created with an exported snapshot; the relay sends the rows that this snapshot sees and that the
// last confirmed snapshot of the position record does not see, in the order of their insertion, as a
// new owner, before it handles anything of the stream. Until all rows are acknowledged, the position record
// selects them, and counts those that are acknowledged. So a refill continues where it was interrupted.
//
// The relay writes that record after it has created the slot. If the process ends in between, the new slot is
// ahead of the old record, which is a gap: the next start refills again. If the slot of a refill is lost, another refill sends
// the same rows first, so that it can continue after those that were acknowledged.
//
// The goroutine of the relay's Run, which also runs the pump, uses a [Planner]. The package has no lock, channel or goroutine of its
// own.
package refill
