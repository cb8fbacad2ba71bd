package checkpoint

import (
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Seq is the number of a record of a Tracker. Records are numbered from 1, in the
// order in which they are read. Zero is no record.
type Seq uint64

// A Tracker computes the position that a relay may confirm to Postgres. It is the only
// place that knows what is in flight; [Transaction] has what others need of a
// transaction when it is confirmed.
//
// One goroutine reads the stream and calls Begin, Next, Cancel, Trace, Snapshot, Commit
// and Keepalive. Resume, Recall and Reread must be called while no goroutine reads. All other
// methods may be called from any goroutine. No method blocks for long: a method waits for
// the other methods and for onConfirmed only.
//
// A Tracker uses one bit per record and 64 bytes per transaction in Window, and a few bytes
// for each 256 records and each MiB of rows. So its memory depends on how far the newest
// record is ahead of the oldest unacknowledged one, not on the size of a transaction.
type Tracker struct {
	confirmed   atomic.Uint64 // an LSN; written under mu, never decreases
	onConfirmed func(Transaction)

	mu          sync.Mutex
	base        Seq           // every record <= base is acknowledged
	last        Seq           // the newest record; base <= last
	outstanding int           // number of records in (base, last] that are not acknowledged
	acked       window        // which records in (base, last] are acknowledged
	inFlight    queue         // the transactions with a record > base, and the open one if it has records
	newestLSN   pglogrepl.LSN // of the row that was numbered last
	newestIndex int
	open        transaction // the transaction being read; valid while isOpen
	isOpen      bool
	snapshot    Snapshot // of the open transaction
	counts      bool     // the open transaction can be a Landmark, see Note
	traces      int      // number of transactions in inFlight with a trace
	snapshots   int      // number of transactions in inFlight with a snapshot
	marks       marks    // the marks in (base, last], and the last one before
	bytes       int64    // size of all rows numbered so far
	resume      Prefix   // delivered by an earlier process; zero: nothing

	passed     Landmark    // the last transaction that ends at or before confirmed; zero: unknown
	seenAgain  recognition // by the current session
	recognized atomic.Bool // see Recognized

	// The records in (seen, last] were numbered by an earlier session. The current session has
	// not read them yet, and the server must resend them.
	seen     Seq
	known    int64   // number of rows of the open transaction that an earlier session or process has read
	complete bool    // the open transaction has no rows beyond the known ones
	read     reading // rows of the open transaction that this session has read; used by the reader only
	unread   reading // read before the last row, for Cancel
}

// New returns a Tracker without outstanding records. start is the position at which the
// session starts, and the first value of Confirmed. Zero means the slot's own position:
// Confirmed then returns zero until a later position is confirmed.
//
// The Tracker calls onConfirmed once for each confirmed transaction that has a record or
// a snapshot, in commit order, one call at a time. Confirmed already includes the
// transaction. The call runs on the goroutine that confirms the transaction, with the
// Tracker locked, so it must not block or call a method other than Confirmed. onConfirmed
// may be nil.
func New(start pglogrepl.LSN, onConfirmed func(Transaction)) *Tracker {
	if onConfirmed == nil {
		onConfirmed = func(Transaction) {}
	}
	t := &Tracker{onConfirmed: onConfirmed, acked: newWindow(), inFlight: newQueue(), marks: marks{{}}}
	t.confirmed.Store(uint64(start))
	return t
}

// Begin opens the transaction with the commit record at commitLSN. commitTime may be zero
// if it is unknown. Keepalives have no effect until the Commit. Begin panics if a
// transaction is open.
//
// The error is a [*RereadError] if the server should have resent another transaction
// first, or a [*HistoryError]. The session must end then.
func (t *Tracker) Begin(commitLSN pglogrepl.LSN, commitTime time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOpen {
		panic("checkpoint: Begin inside a transaction")
	}
	if err := t.recognize(commitLSN); err != nil {
		return err
	}
	t.open = transaction{first: t.last + 1, last: unfinished, commitLSN: commitLSN}
	if !commitTime.IsZero() {
		t.open.commitMicros = commitTime.UnixMicro()
	}
	t.known, t.complete, t.read = t.resumed(commitLSN), false, reading{}
	if err := t.matchResent(commitLSN); err != nil {
		return err
	}
	t.isOpen, t.counts = true, false
	return nil
}

// Next numbers the record for the next row of the open transaction. The record is
// outstanding until it is acknowledged. row has the bytes that the server sent for the
// row, which are the same in every session. Next returns 0 for a row that must not be sent
// again: an earlier session has numbered it, Resume has named it, or its transaction is
// confirmed. Next panics if no transaction is open.
//
// The error is a [*RereadError] if the transaction has more rows than in an earlier
// session, or a [*PrefixError].
func (t *Tracker) Next(row []byte) (Seq, error) {
	t.unread = t.read
	t.read = reading{t.unread.rows + 1, crc32.Update(t.unread.crc, castagnoli, row)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Next outside a transaction")
	}
	t.counts = true
	if t.complete || t.read.rows <= t.known {
		return 0, t.checkResentRow()
	}
	t.last++
	t.newestLSN, t.newestIndex = t.open.commitLSN, int(t.read.rows)-1
	t.outstanding++
	t.bytes += int64(len(row))
	t.marks.add(mark{t.last, t.read.crc, t.bytes})
	t.acked.cover(t.base+1, t.last)
	if t.last == t.open.first {
		t.inFlight.push(t.open)
	}
	return t.last, nil
}

func (t *Tracker) openIsConfirmed() bool { return uint64(t.open.commitLSN) < t.confirmed.Load() }

// Cancel undoes the last Next, because the sink did not accept the record. It panics if
// the open transaction has no record, or if the record is acknowledged.
func (t *Tracker) Cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen || t.last < t.open.first || t.last <= t.base || t.acked.has(t.last) {
		panic("checkpoint: Cancel without an outstanding record")
	}
	if t.last == t.open.first {
		t.forgetNotes(t.inFlight.tail().confirmed())
		t.inFlight.dropTail()
	}
	t.last--
	t.outstanding--
	t.marks.dropAfter(t.last)
	t.read = t.unread
}

// Trace sets the trace of the last numbered record. A transaction keeps its first trace.
// At most 1,024 transactions in flight have one; Trace ignores the others. It panics if
// the open transaction has no record.
func (t *Tracker) Trace(id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen || t.last < t.open.first {
		panic("checkpoint: Trace without a record")
	}
	if t.traces == maxTraces {
		return
	}
	if n := t.inFlight.tail().ensureNotes(); n.traceID == ([16]byte{}) {
		n.traceID = id
		t.traces++
	}
}

// Snapshot sets the snapshot that the open transaction has read. Its end and its commit time are those of the
// transaction. At most 64 transactions in flight have one; Snapshot drops the others, because a newer
// snapshot follows. It panics if no transaction is open.
func (t *Tracker) Snapshot(s Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Snapshot outside a transaction")
	}
	t.snapshot, t.counts = s, true
}

// Note says that the open transaction has something that every session gets and reads in the same way, as one with a row or a snapshot has.
// Only such a transaction can be a [Landmark]: after changes to a publication, Postgres may resend a transaction that has only rows of other
// tables, or not. Note has no effect outside a transaction.
func (t *Tracker) Note() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = true
}

// Commit completes the open transaction, which ends at endLSN. The Tracker confirms endLSN
// when every record up to here is acknowledged. Commit panics if no transaction is open.
//
// The error is a [*RereadError] if the transaction has fewer rows than in an earlier
// session, or a [*PrefixError].
func (t *Tracker) Commit(endLSN pglogrepl.LSN) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Commit outside a transaction")
	}
	t.isOpen = false
	snapshot := t.snapshot
	t.snapshot = Snapshot{}
	if t.read.rows < t.known && !t.openIsConfirmed() {
		if !t.onlyResumed() {
			return &RereadError{CommitLSN: t.open.commitLSN, Found: fmt.Sprintf("it lacks %d of its rows", t.known-t.read.rows)}
		}
		if t.read.rows > 0 { // with no rows at all, the relay was asked to skip the transaction
			return t.forgetResumed()
		}
	}
	mark := Landmark{}
	if t.openIsConfirmed() {
		t.seenAgain.add(t.open.landmark(), t.passed, t.counts)
	} else if t.counts {
		mark = t.open.landmark()
	}
	if t.complete {
		if t.open.last != unfinished {
			t.seen = t.open.last
		}
		t.extendReach(endLSN, mark)
		return nil
	}
	if t.last >= t.open.first {
		t.inFlight.tail().last = t.last
	}
	t.seen = t.last
	t.extendReach(endLSN, mark)
	if snapshot.Text != "" {
		snapshot.EndLSN, snapshot.CommitTime = endLSN, t.open.commitTime()
		t.carrySnapshot(snapshot)
	}
	t.advance()
	return nil
}

// Keepalive reports a keepalive with position walEnd. The Tracker confirms it when every
// record up to here is acknowledged. Inside a transaction, Keepalive has no effect.
//
// The error is a [*HistoryError]. The session must end then.
func (t *Tracker) Keepalive(walEnd pglogrepl.LSN) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOpen {
		return nil
	}
	if err := t.recognize(walEnd); err != nil {
		return err
	}
	t.extendReach(walEnd, Landmark{})
	return nil
}

// Ack acknowledges records, in any order. It stops at a Seq that was never issued or is
// already acknowledged, and returns an error. The records before it are acknowledged.
// Such an error is a bug of the caller, and the relay must not confirm anything after
// it. Ack does not retain seqs.
func (t *Tracker) Ack(seqs ...Seq) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.advance()
	for _, seq := range seqs {
		if seq == 0 || seq > t.last {
			return fmt.Errorf("acknowledge record %d: it was never issued, the last one is %d", seq, t.last)
		}
		if seq <= t.base || t.acked.has(seq) {
			return fmt.Errorf("acknowledge record %d: it is already acknowledged", seq)
		}
		t.acked.add(seq)
		t.outstanding--
	}
	return nil
}

// Confirmed returns the position that may be confirmed to Postgres: every record before
// it is acknowledged. It never decreases. The call is a single atomic load.
func (t *Tracker) Confirmed() pglogrepl.LSN {
	return pglogrepl.LSN(t.confirmed.Load())
}

// Outstanding returns the number of unacknowledged records.
func (t *Tracker) Outstanding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outstanding
}

// Newest returns the newest record, with the commit LSN of its transaction and the index of its row there. They are 0 if there
// was none. After a Cancel, the row may be the cancelled one.
func (t *Tracker) Newest() (seq Seq, commitLSN pglogrepl.LSN, index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.newestLSN, t.newestIndex
}

// AckedUpTo reports whether every record up to seq is acknowledged.
func (t *Tracker) AckedUpTo(seq Seq) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return seq <= t.base
}

// Window returns the number of records from the oldest unacknowledged one to the newest,
// including acknowledged ones in between. It is 0 if none is outstanding. While one
// record stays unacknowledged, the window grows with every record that is read, and with
// it the memory of the Tracker and the number of duplicates after a crash. The caller
// must limit it.
func (t *Tracker) Window() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.last - t.base)
}

// WindowBytes returns the size of the rows in Window, in bytes. The result may be too large
// by up to 1 MiB and one row.
func (t *Tracker) WindowBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base == t.last {
		return 0
	}
	return t.bytes - t.marks[0].bytes
}

// Unconfirmed returns the commit LSN of the oldest unconfirmed transaction with records. ok is false if
// there is none.
func (t *Tracker) Unconfirmed() (commitLSN pglogrepl.LSN, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight.len() == 0 {
		return 0, false
	}
	return t.inFlight.head().commitLSN, true
}

// OldestCommitTime returns the commit time of the oldest unconfirmed transaction that has
// records and a known commit time. It returns the zero time if there is none.
func (t *Tracker) OldestCommitTime() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.inFlight.len() {
		if txn := t.inFlight.at(i); txn.commitMicros != 0 {
			return txn.commitTime()
		}
	}
	return time.Time{}
}

// Locate returns the commit LSN of the transaction that has the unacknowledged record
// seq, and the index of its row in the transaction, from 0. ok is false if seq is not
// outstanding.
func (t *Tracker) Locate(seq Seq) (commitLSN pglogrepl.LSN, index int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq <= t.base || seq > t.last || t.acked.has(seq) {
		return 0, 0, false
	}
	txn := t.inFlight.find(seq)
	return txn.commitLSN, int(t.resumed(txn.commitLSN)) + int(seq-txn.first), true
}

// OpenTransaction returns the commit LSN of the open transaction, and the number of its
// rows before the first unacknowledged one. ok is false if no transaction is open.
func (t *Tracker) OpenTransaction() (commitLSN pglogrepl.LSN, acked int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		return 0, 0, false
	}
	end := max(t.open.first, t.base+1) // every record before end is acknowledged
	for end <= t.last && t.acked.has(end) {
		end++
	}
	return t.open.commitLSN, int(t.resumed(t.open.commitLSN)) + int(end-t.open.first), true
}

// extendReach has the Tracker confirm lsn when every record up to the newest one is
// acknowledged. newest is the transaction that ends there, if it can be a Landmark. No transaction may be open.
func (t *Tracker) extendReach(lsn pglogrepl.LSN, newest Landmark) {
	if t.inFlight.len() == 0 {
		t.confirm(lsn, newest)
		return
	}
	txn := t.inFlight.tail()
	txn.confirms = max(txn.confirms, lsn)
	if newest.isAfter(txn.newest()) {
		txn.later = newest
	}
}

// carrySnapshot adds s to the newest transaction in flight. If none is in flight, s is
// confirmed at once.
func (t *Tracker) carrySnapshot(s Snapshot) {
	if t.inFlight.len() == 0 {
		t.onConfirmed(Transaction{Snapshot: s})
		return
	}
	if t.snapshots == maxSnapshotsInFlight {
		return
	}
	n := t.inFlight.tail().ensureNotes()
	if n.snapshot.Text == "" {
		t.snapshots++
	}
	n.snapshot = s
}

// advance moves base to the last record of the unbroken sequence of acknowledged ones, and
// confirms the transactions that are complete.
func (t *Tracker) advance() {
	t.base = t.acked.consume(t.base, t.last)
	t.marks.dropBefore(t.base)
	for t.inFlight.len() > 0 && t.inFlight.head().last <= t.base {
		txn := *t.inFlight.head()
		t.inFlight.pop()
		t.confirm(txn.confirms, txn.newest())
		done := txn.confirmed()
		t.forgetNotes(done)
		t.onConfirmed(done)
	}
}

// forgetNotes updates the counts of traces and snapshots when txn leaves the queue.
func (t *Tracker) forgetNotes(txn Transaction) {
	if txn.TraceID != ([16]byte{}) {
		t.traces--
	}
	if txn.Snapshot.Text != "" {
		t.snapshots--
	}
}

// confirm raises the confirmed position to lsn. A lower LSN has no effect. newest is the last Landmark
// before lsn that was read since the last call, or zero.
func (t *Tracker) confirm(lsn pglogrepl.LSN, newest Landmark) {
	if uint64(lsn) > t.confirmed.Load() {
		t.confirmed.Store(uint64(lsn))
	}
	if newest.isAfter(t.passed) {
		t.passed = newest
	}
}
