package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// A Prefix is the beginning of a transaction, by its rows in the order in which
// they are sent.
type Prefix struct {
	CommitLSN pglogrepl.LSN
	Rows      int64
	CRC       uint32 // CRC-32C of the concatenated rows
}

// Prefix returns the acknowledged rows at the beginning of the oldest unconfirmed
// transaction, up to the last mark, so that a later reading can be compared. It returns
// the zero Prefix if there are none.
func (t *Tracker) Prefix() Prefix {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight.len() > 0 {
		oldest, m := t.inFlight.head(), t.marks[0]
		if m.seq >= oldest.first {
			return Prefix{oldest.commitLSN, t.resumed(oldest.commitLSN) + int64(m.seq-oldest.first) + 1, m.crc}
		}
		if oldest.commitLSN != t.resume.CommitLSN {
			return Prefix{}
		}
	}
	if uint64(t.resume.CommitLSN) < t.confirmed.Load() {
		return Prefix{}
	}
	return t.resume
}

// Resume marks the rows of p as acknowledged. It must be called before anything is
// read.
func (t *Tracker) Resume(p Prefix) { t.resume = p }

// resumed returns how many rows of the transaction at commitLSN Resume has named.
func (t *Tracker) resumed(commitLSN pglogrepl.LSN) int64 {
	if commitLSN != t.resume.CommitLSN {
		return 0
	}
	return t.resume.Rows
}

// onlyResumed reports whether Resume has named rows of the open transaction, and none of its other
// rows is numbered.
func (t *Tracker) onlyResumed() bool {
	return t.open.commitLSN == t.resume.CommitLSN && t.last < t.open.first
}

// forgetResumed forgets the rows that Resume has named, because the open transaction does not begin
// with them, and returns the error that says so.
func (t *Tracker) forgetResumed() error {
	p := t.resume
	t.resume = Prefix{}
	return &PrefixError{p}
}

// A PrefixError says that a transaction does not begin with the rows that Resume has
// named. The Tracker has forgotten them, so the next reading sends all its rows.
type PrefixError struct{ Prefix }

// Error names the transaction.
func (e *PrefixError) Error() string {
	return fmt.Sprintf("the transaction at %s does not begin with the %d rows that were delivered: the relay resends all its rows", e.CommitLSN, e.Rows)
}
