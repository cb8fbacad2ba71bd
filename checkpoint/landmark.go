package checkpoint

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Landmark identifies a transaction of the WAL: a copy of the server that was restored from a backup, and then written to, has no
// commit record at the same position with the same time. The zero Landmark is unknown.
type Landmark struct {
	CommitLSN pglogrepl.LSN
	Micros    int64 // Unix time of the commit; 0: unknown
}

// isAfter reports whether l is later in the same WAL than other, or other is unknown.
func (l Landmark) isAfter(other Landmark) bool { return l.CommitLSN > other.CommitLSN }

// A recognition compares what a session resends with what was confirmed before. A server never decodes a confirmed transaction again
// unless its slot has gone back; then it resends the last of them, and no later one, before anything new.
type recognition struct {
	from   pglogrepl.LSN // where the server starts to send
	resent Landmark      // the last resent transaction that was confirmed before; zero: none yet
	done   bool          // everything that was confirmed before is compared
}

// Recall sets the last transaction that an earlier process has confirmed, for the first Reread. The zero Landmark is unknown.
func (t *Tracker) Recall(last Landmark) { t.passed = last }

// Recognized reports whether the current session reads the WAL of the earlier ones, as far as it can be known. Until then, nothing may
// be confirmed to Postgres: the slot would lose the rows that only this server has.
func (t *Tracker) Recognized() bool { return t.recognized.Load() }

// Passed returns the confirmed position, and the last transaction before it, whether it had records or not.
func (t *Tracker) Passed() (confirmed pglogrepl.LSN, last Landmark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Confirmed(), t.passed
}

// recognize compares what the session has resent, if it has resent everything that was confirmed before: the next thing is at lsn.
func (t *Tracker) recognize(lsn pglogrepl.LSN) error {
	if t.seenAgain.done || uint64(lsn) < t.confirmed.Load() {
		return nil
	}
	known, found := t.passed, t.seenAgain.resent
	missing := found == Landmark{} && known.CommitLSN >= t.seenAgain.from
	other := found != Landmark{} && found != known
	if known != (Landmark{}) && (missing || other) {
		return &HistoryError{Confirmed: t.Confirmed(), Known: known, Found: found}
	}
	if known == (Landmark{}) {
		t.passed = found
	}
	t.seenAgain.done = true
	t.recognized.Store(true)
	return nil
}

// A HistoryError says that the server does not have the WAL that was confirmed before, although it has as much: it is a copy from before
// that, to which somebody has written. It wraps [ErrOtherWAL].
type HistoryError struct {
	Confirmed    pglogrepl.LSN
	Known, Found Landmark // the last transaction before Confirmed, and that of the server; Found may be zero: none
}

// Error names both transactions.
func (e *HistoryError) Error() string {
	found := "no transaction"
	if e.Found != (Landmark{}) {
		found = "the transaction " + e.Found.String()
	}
	return fmt.Sprintf("the last transaction before the record at %s was %s, and the server has %s there: an older copy, such as a restored backup, with rows of its own",
		e.Confirmed, e.Known, found)
}

// Unwrap returns ErrOtherWAL.
func (e *HistoryError) Unwrap() error { return ErrOtherWAL }

// String returns the position and the time.
func (l Landmark) String() string {
	return fmt.Sprintf("%s of %s", l.CommitLSN, time.UnixMicro(l.Micros).UTC().Format("2006-01-02T15:04:05.000000Z"))
}
