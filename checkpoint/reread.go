package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// A reading counts the rows that a session has read of the open transaction.
type reading struct {
	rows int64
	crc  uint32
}

// Reread tells the Tracker that a new session of the same slot follows, which starts at
// Confirmed or before. The server must resend what is in flight, in the same order: each
// unconfirmed transaction with the same rows, and the open transaction from its first
// row, possibly with more rows. The Tracker forgets rows of the last session that it has
// not numbered.
//
// from is where the server starts to send: the confirmed position of the slot. If that is before
// Confirmed, the server also resends transactions that were confirmed, and the Tracker compares the
// last Landmark. 0 means that from is unknown, and nothing is compared.
func (t *Tracker) Reread(from pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen, t.snapshot, t.seen = false, Snapshot{}, 0
	t.seenAgain = recognition{from: from, done: from == 0}
	t.recognized.Store(from == 0)
}

// matchResent compares the transaction that begins with what an earlier session has read. If
// it is in flight, matchResent restores its state.
func (t *Tracker) matchResent(commitLSN pglogrepl.LSN) error {
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
	case commitLSN < was.commitLSN: // a transaction without rows is not in the queue
		t.complete = true
	default:
		t.open = *was
		t.complete = was.last != unfinished
		t.known += int64(min(was.last, t.last) - was.first + 1)
	}
	return nil
}

// checkResentRow compares a row with what an earlier session, or an earlier process, has read of
// its transaction.
func (t *Tracker) checkResentRow() error {
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

// A RereadError says that the server did not resend the transactions that it had sent to
// an earlier session. Neither what is in flight nor what is read can be trusted then.
type RereadError struct {
	CommitLSN pglogrepl.LSN // of the transaction that is in flight
	Found     string        // what the server sent instead
}

// Error names the transaction.
func (e *RereadError) Error() string {
	return fmt.Sprintf("Postgres resent the transaction at %s differently: %s", e.CommitLSN, e.Found)
}
