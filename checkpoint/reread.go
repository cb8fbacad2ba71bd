package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// A reading is how far a transaction is read, from its beginning.
type reading struct {
	rows int64
	crc  uint32
}

// Reread begins another reading, by another session of the same slot that starts
// at Confirmed or before. What is in flight is read again, in the same order: a
// transaction that is not confirmed comes with the rows that it had, and a
// transaction that was open begins again and may then go on. What was read and has
// no number yet is forgotten.
func (t *Tracker) Reread() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen, t.snapshot, t.seen = false, "", 0
}

// nextAgain compares a row of a transaction that was read before.
func (t *Tracker) nextAgain() error {
	switch {
	case t.openIsConfirmed():
		return nil
	case t.read.rows > t.known:
		return &RereadError{CommitLSN: t.open.commitLSN, Found: "it has more rows than it had before"}
	case t.read.rows == t.resume.Rows && t.read.crc != t.resume.CRC && t.onlyResumed():
		return t.forgetResumed()
	}
	return nil
}

// A RereadError says that the server does not send again what it has sent before:
// neither what is in flight nor what is read can be trusted.
type RereadError struct {
	CommitLSN pglogrepl.LSN // of the transaction that is in flight
	Found     string        // what came instead
}

// Error names the transaction.
func (e *RereadError) Error() string {
	return fmt.Sprintf("Postgres resent the transaction at %s differently: %s", e.CommitLSN, e.Found)
}
