package checkpoint

import (
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Seq numbers the records of one Tracker in the order they were read. The
// first is 1; zero is no record.
type Seq uint64

// A Tracker computes the position a replication session may confirm.
//
// It is the only record of what is in flight. A transaction carries what others
// need when it is confirmed: see [Transaction].
//
// Begin, Next, Cancel, Trace, Snapshot, Commit and Keepalive report what was read
// and belong to the one goroutine that reads; Resume and Reread are called while
// there is none. All other methods may be called from any goroutine. No method
// blocks on anything but the other methods, all of them short, and the function
// given to New.
//
// Its memory is one bit per record and 48 bytes per transaction in Span, and a
// little for each 256 records and each MiB of rows: the size of a transaction does
// not matter, only how far the newest record is ahead of the oldest unacknowledged
// one.
type Tracker struct {
	confirmed   atomic.Uint64 // an LSN; written under mu, never decreases
	onConfirmed func(Transaction)

	mu          sync.Mutex
	base        Seq         // every record <= base is acknowledged
	last        Seq         // the newest record; base <= last
	outstanding int         // how many records in (base, last] are not acknowledged
	acked       window      // which records in (base, last] are acknowledged
	inFlight    queue       // the transactions with a record > base, and the open one if it has records
	open        transaction // the transaction being read; meaningful while isOpen
	isOpen      bool
	snapshot    string // of the open transaction
	traces      int    // in inFlight
	snapshots   int    // in inFlight
	marks       marks  // in (base, last], and one before
	bytes       int64  // of the rows numbered so far
	resume      Prefix // acknowledged before the Tracker was made; zero: nothing

	// What the current reading has read of (base, last]. The records in (seen, last] were
	// numbered by an earlier reading; the server is expected to resend them.
	seen     Seq
	known    int64   // how many rows of the open transaction an earlier reading has read
	complete bool    // it has no further rows
	read     reading // of the open transaction; of the reader
	unread   reading // before its last row
}

// New returns a Tracker that has nothing outstanding and confirms start, the
// position the session starts from. Zero stands for the slot's own position: the
// Tracker confirms nothing until it has a later one.
//
// onConfirmed is called once for each transaction that has a record or a
// snapshot, in commit order, when it is confirmed; Confirmed includes it by then.
// The goroutine that completes the transaction calls it, one call at a time. It
// must not block or call a method other than Confirmed. Nil: no calls.
func New(start pglogrepl.LSN, onConfirmed func(Transaction)) *Tracker {
	if onConfirmed == nil {
		onConfirmed = func(Transaction) {}
	}
	t := &Tracker{onConfirmed: onConfirmed, acked: newWindow(), inFlight: newQueue(), marks: marks{{}}}
	t.confirmed.Store(uint64(start))
	return t
}

// Begin opens the transaction whose commit record is at commitLSN and of
// commitTime; a zero time is unknown. Until its Commit, keepalives do not count.
// It panics if a transaction is open.
//
// The error is a [*RereadError] if another transaction is in flight and should have
// come first. Then nothing that is read can be trusted, and no further method of the
// reading may be called.
func (t *Tracker) Begin(commitLSN pglogrepl.LSN, commitTime time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOpen {
		panic("checkpoint: Begin inside a transaction")
	}
	t.open = transaction{first: t.last + 1, last: unfinished, commitLSN: commitLSN}
	if !commitTime.IsZero() {
		t.open.commitMicros = commitTime.UnixMicro()
	}
	t.known, t.complete, t.read = t.resumed(commitLSN), false, reading{}
	if err := t.beginAgain(commitLSN); err != nil {
		return err
	}
	t.isOpen = true
	return nil
}

// Next numbers the record of one more row of the open transaction. The record is
// outstanding until it is acknowledged. row is what the server sends for the row, the
// same in each reading. Next returns 0 for a row that must not be resent: an earlier
// reading has numbered it, Resume has named it, or its transaction is confirmed. It
// panics if no transaction is open.
//
// The error is a [*RereadError] if an earlier reading saw fewer rows of the
// transaction, or a [*PrefixError].
func (t *Tracker) Next(row []byte) (Seq, error) {
	t.unread = t.read
	t.read = reading{t.unread.rows + 1, crc32.Update(t.unread.crc, castagnoli, row)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Next outside a transaction")
	}
	if t.complete || t.read.rows <= t.known {
		return 0, t.nextAgain()
	}
	t.last++
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

// Cancel takes the last number back: its record was not accepted. It panics if the
// open transaction has no record, or that one is acknowledged.
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

// Trace notes that the last numbered record is part of a trace. A transaction
// keeps its first trace. Traces are examples: at most 1,024 transactions in flight
// have one. It panics if the open transaction has no record.
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

// Snapshot notes what pg_current_snapshot() returned in the open transaction, a
// [ValidSnapshot]. At most 64 wait for their transaction to be confirmed; others are
// dropped, since each one is followed by the next. It panics if no transaction is open.
func (t *Tracker) Snapshot(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Snapshot outside a transaction")
	}
	t.snapshot = text
}

// Commit completes the open transaction, which ends at endLSN: the position
// that is confirmed once everything read up to here is acknowledged. It panics
// if no transaction is open.
//
// The error is a [*RereadError] if an earlier reading saw more rows of the
// transaction, or a [*PrefixError].
func (t *Tracker) Commit(endLSN pglogrepl.LSN) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Commit outside a transaction")
	}
	t.isOpen = false
	snapshot := t.snapshot
	t.snapshot = ""
	if t.read.rows < t.known && !t.openIsConfirmed() {
		if !t.onlyResumed() {
			return &RereadError{CommitLSN: t.open.commitLSN, Found: fmt.Sprintf("it lacks %d of its rows", t.known-t.read.rows)}
		}
		if t.read.rows > 0 { // else the reader skips it
			return t.forgetResumed()
		}
	}
	if t.complete {
		if t.open.last != unfinished {
			t.seen = t.open.last
		}
		t.extendReach(endLSN)
		return nil
	}
	if t.last >= t.open.first {
		t.inFlight.tail().last = t.last
	}
	t.seen = t.last
	t.extendReach(endLSN)
	if snapshot != "" {
		t.carrySnapshot(Snapshot{EndLSN: endLSN, Text: snapshot})
	}
	t.advance()
	return nil
}

// Keepalive reports a keepalive with the position walEnd, read after everything
// reported so far. It has no effect, also later, if a transaction is open.
func (t *Tracker) Keepalive(walEnd pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		t.extendReach(walEnd)
	}
}

// Ack acknowledges records. A Seq that was never issued or is acknowledged
// already is a bug of the caller, whose view of what is delivered cannot be
// trusted any more: Ack stops at it and returns an error; those before it count.
// Ack does not retain seqs.
func (t *Tracker) Ack(seqs ...Seq) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.advance()
	for _, seq := range seqs {
		if seq == 0 || seq > t.last {
			return fmt.Errorf("acknowledge record %d: never issued, the last is %d", seq, t.last)
		}
		if seq <= t.base || t.acked.has(seq) {
			return fmt.Errorf("acknowledge record %d: acknowledged before", seq)
		}
		t.acked.add(seq)
		t.outstanding--
	}
	return nil
}

// Confirmed returns the position that may be confirmed: everything before it is
// acknowledged. It never decreases. It is a single atomic load.
func (t *Tracker) Confirmed() pglogrepl.LSN {
	return pglogrepl.LSN(t.confirmed.Load())
}

// Outstanding returns the number of records that are not acknowledged.
func (t *Tracker) Outstanding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outstanding
}

// Span returns the number of records from the oldest unacknowledged to the
// newest, acknowledged ones between them included; 0 if none is outstanding. One
// record that stays unacknowledged lets it grow while others are delivered, and
// with it memory and what is resent after a crash. The caller bounds it.
func (t *Tracker) Span() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.last - t.base)
}

// SpanBytes returns the size of the rows in Span in bytes. The result may exceed it by
// up to 1 MiB and a row.
func (t *Tracker) SpanBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base == t.last {
		return 0
	}
	return t.bytes - t.marks[0].bytes
}

// Unconfirmed returns the oldest transaction that has records and is not confirmed, by the LSN of its
// commit record. ok is false if there is none.
func (t *Tracker) Unconfirmed() (commitLSN pglogrepl.LSN, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inFlight.len() == 0 {
		return 0, false
	}
	return t.inFlight.head().commitLSN, true
}

// OldestCommitTime returns the commit time of the oldest transaction that has one, has
// records and is not confirmed; the zero time if there is none.
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

// Locate returns the transaction of an unacknowledged record, by the LSN of its
// commit record, and the index of the record in it, from 0. ok is false if seq is
// not outstanding.
func (t *Tracker) Locate(seq Seq) (commitLSN pglogrepl.LSN, index int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq <= t.base || seq > t.last || t.acked.has(seq) {
		return 0, 0, false
	}
	txn := t.inFlight.find(seq)
	return txn.commitLSN, int(t.resumed(txn.commitLSN)) + int(seq-txn.first), true
}

// OpenTransaction returns the open transaction, by the LSN of its commit record,
// and how many of its rows are acknowledged before the first that is not. ok is
// false if no transaction is open.
func (t *Tracker) OpenTransaction() (commitLSN pglogrepl.LSN, acked int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		return 0, 0, false
	}
	end := max(t.open.first, t.base+1) // the records before end are acknowledged
	for end <= t.last && t.acked.has(end) {
		end++
	}
	return t.open.commitLSN, int(t.resumed(t.open.commitLSN)) + int(end-t.open.first), true
}

// extendReach notes that lsn may be confirmed once every record up to the newest
// is acknowledged. No transaction may be open.
func (t *Tracker) extendReach(lsn pglogrepl.LSN) {
	if t.inFlight.len() == 0 {
		t.confirm(lsn)
		return
	}
	txn := t.inFlight.tail()
	txn.confirms = max(txn.confirms, lsn)
}

// carrySnapshot has the newest transaction in flight carry s. If none is in
// flight, s is confirmed at once.
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

// advance moves base over the acknowledged records, and confirms the transactions
// that end there.
func (t *Tracker) advance() {
	t.base = t.acked.consume(t.base, t.last)
	t.marks.dropBefore(t.base)
	for t.inFlight.len() > 0 && t.inFlight.head().last <= t.base {
		txn := *t.inFlight.head()
		t.inFlight.pop()
		t.confirm(txn.confirms)
		done := txn.confirmed()
		t.forgetNotes(done)
		t.onConfirmed(done)
	}
}

// forgetNotes notes that a transaction has left the queue.
func (t *Tracker) forgetNotes(txn Transaction) {
	if txn.TraceID != ([16]byte{}) {
		t.traces--
	}
	if txn.Snapshot.Text != "" {
		t.snapshots--
	}
}

// confirm raises the confirmed position to lsn. A lower one has no effect.
func (t *Tracker) confirm(lsn pglogrepl.LSN) {
	if uint64(lsn) > t.confirmed.Load() {
		t.confirmed.Store(uint64(lsn))
	}
}
