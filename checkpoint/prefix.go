package checkpoint

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// A Prefix identifies the first rows of a transaction, in the order in which Postgres
// sends them.
type Prefix struct {
	CommitLSN pglogrepl.LSN
	Rows      int64
	CRC       uint32 // CRC-32C of the concatenated rows
}

// Prefix returns the acknowledged rows at the beginning of the oldest unconfirmed
// transaction, up to the last mark. Another process passes it to Resume. The zero Prefix
// means that there are none.
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

// Resume sets the rows that an earlier process has delivered: Next returns 0 for them. It
// must be called before Begin, at most once.
func (t *Tracker) Resume(p Prefix) { t.resume = p }

// resumed returns how many rows of the transaction at commitLSN an earlier process has
// delivered.
func (t *Tracker) resumed(commitLSN pglogrepl.LSN) int64 {
	if commitLSN != t.resume.CommitLSN {
		return 0
	}
	return t.resume.Rows
}

// onlyResumed reports whether an earlier process has delivered rows of the open transaction, and
// no other row of it is numbered.
func (t *Tracker) onlyResumed() bool {
	return t.open.commitLSN == t.resume.CommitLSN && t.last < t.open.first
}

// forgetResumed undoes Resume and returns a *PrefixError, because the open transaction does not begin
// with the rows that an earlier process has delivered.
func (t *Tracker) forgetResumed() error {
	p := t.resume
	t.resume = Prefix{}
	return &PrefixError{p}
}

// A PrefixError says that a transaction does not begin with the rows passed to Resume.
// The Tracker has forgotten them, so the next session resends all rows of the
// transaction.
type PrefixError struct{ Prefix }

// Error names the transaction.
func (e *PrefixError) Error() string {
	return fmt.Sprintf("the transaction at %s does not begin with the %d delivered rows of the position record: the relay resends all its rows", e.CommitLSN, e.Rows)
}
