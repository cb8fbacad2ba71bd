package checkpoint

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Landmark identifies a transaction of the WAL that every session gets, see [Tracker.Note]: a copy of the server that was restored from a
// backup, and then written to, has no commit record at the same position with the same time. The zero Landmark is unknown.
type Landmark struct {
	CommitLSN pglogrepl.LSN
	Micros    int64 // Unix time of the commit; 0: unknown
}

// isAfter reports whether l is later in the same WAL than other, or other is unknown.
func (l Landmark) isAfter(other Landmark) bool { return l.CommitLSN > other.CommitLSN }

// A recognition compares what a session resends with what was confirmed before. If the slot has gone back, the server resends confirmed
// transactions before anything new. The last Landmark among what was confirmed must be there, and no later one.
type recognition struct {
	from  pglogrepl.LSN // where the server starts to send
	found Landmark      // the last Landmark, as it is at the time when it is resent; zero: not yet
	later Landmark      // a later one that is resent; zero: none
	done  bool          // everything that was confirmed before is compared
}

// add compares a resent transaction with the last Landmark. counts says whether it is one itself.
func (r *recognition) add(resent, last Landmark, counts bool) {
	switch {
	case resent == last:
		r.found = resent
	case counts && resent.isAfter(last):
		r.later = resent
	}
}

// Recall sets the last transaction that an earlier process has confirmed, for the first Reread. The zero Landmark is unknown.
func (t *Tracker) Recall(last Landmark) { t.passed = last }

// Recognized reports whether the current session reads the WAL of the earlier ones, as far as it can be known. Until then, nothing may
// be confirmed to Postgres: the slot would lose the rows that only this server has.
func (t *Tracker) Recognized() bool { return t.recognized.Load() }

// Passed returns the confirmed position, and the last Landmark before it.
func (t *Tracker) Passed() (confirmed pglogrepl.LSN, last Landmark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Confirmed(), t.passed
}

// recognize decides about the session, if it has resent everything that was confirmed before: the next thing is at lsn.
func (t *Tracker) recognize(lsn pglogrepl.LSN) error {
	r := &t.seenAgain
	if r.done || uint64(lsn) < t.confirmed.Load() {
		return nil
	}
	last := t.passed
	missing := last.CommitLSN >= r.from && r.found != last
	if last != (Landmark{}) && (missing || r.later.isAfter(last)) {
		return &HistoryError{Confirmed: t.Confirmed(), Known: last, Found: r.later}
	}
	r.done = true
	t.recognized.Store(true)
	return nil
}

// A HistoryError says that the server does not have the WAL that was confirmed before, although it has as much: it is a copy from before
// that, to which somebody has written. It wraps [ErrOtherWAL].
type HistoryError struct {
	Confirmed    pglogrepl.LSN
	Known, Found Landmark // the last one before Confirmed, and a later one that the server has; Found may be zero: it lacks Known
}

// Error names the transactions.
func (e *HistoryError) Error() string {
	found := "lacks it"
	if e.Found != (Landmark{}) {
		found = "has also " + e.Found.String()
	}
	return fmt.Sprintf("the last transaction before the record at %s was %s, and the server %s: an older copy, such as a restored backup, with rows of its own",
		e.Confirmed, e.Known, found)
}

// Unwrap returns ErrOtherWAL.
func (e *HistoryError) Unwrap() error { return ErrOtherWAL }

// String returns the position and the time.
func (l Landmark) String() string {
	return fmt.Sprintf("%s of %s", l.CommitLSN, time.UnixMicro(l.Micros).UTC().Format("2006-01-02T15:04:05.000000Z"))
}
