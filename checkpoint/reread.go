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

// Reread begins another reading, by a new session of the same slot that starts at
// Confirmed or before. The server must resend what is in flight, in the same order: an
// unconfirmed transaction with the same rows, and the transaction that was open from
// its beginning, possibly with more rows. Reread forgets what was read without being
// numbered.
func (t *Tracker) Reread() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen, t.snapshot, t.seen = false, "", 0
}

// nextAgain compares a row with an earlier reading of its transaction.
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

// A RereadError says that the server has not resent what it sent before. Neither what
// is in flight nor what is read can be trusted.
type RereadError struct {
	CommitLSN pglogrepl.LSN // of the transaction that is in flight
	Found     string        // what the server sent instead
}

// Error names the transaction.
func (e *RereadError) Error() string {
	return fmt.Sprintf("Postgres resent the transaction at %s differently: %s", e.CommitLSN, e.Found)
}
