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

// beginAgain restores what an earlier reading knows of the transaction to be opened.
func (t *Tracker) beginAgain(commitLSN pglogrepl.LSN) error {
	if uint64(commitLSN) < t.confirmed.Load() {
		t.complete = true
		return nil
	}
	next := max(t.seen, t.base) + 1
	if next > t.last && (t.inFlight.len() == 0 || t.inFlight.tail().last != unfinished) {
		return nil
	}
	was := t.inFlight.find(next)
	switch {
	case commitLSN > was.commitLSN:
		return &RereadError{CommitLSN: was.commitLSN, Found: fmt.Sprintf("it sent the transaction at %s in its place", commitLSN)}
	case commitLSN < was.commitLSN: // it had no rows
		t.complete = true
	default:
		t.open = *was
		t.complete = was.last != unfinished
		t.known += int64(min(was.last, t.last) - was.first + 1)
	}
	return nil
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
