package checkpoint

import (
	"fmt"
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
// Begin, Next, Trace, Snapshot, Commit and Keepalive report what was read and
// belong to the one goroutine that reads. All other methods may be called from
// any goroutine. No method blocks on anything but the other methods, all of them
// short, and the function given to New.
//
// Its memory is one bit per record and 48 bytes per transaction in Span: the
// size of a transaction does not matter, only how far the newest record is
// ahead of the oldest unacknowledged one.
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
	traces      int    // in queue
	snapshots   int    // in queue
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
	t := &Tracker{onConfirmed: onConfirmed, acked: newWindow(), inFlight: newQueue()}
	t.confirmed.Store(uint64(start))
	return t
}

// Begin opens the transaction whose commit record is at commitLSN and of
// commitTime; a zero time is unknown. Until its Commit, keepalives do not count.
// It panics if a transaction is open.
func (t *Tracker) Begin(commitLSN pglogrepl.LSN, commitTime time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOpen {
		panic("checkpoint: Begin inside a transaction")
	}
	t.isOpen = true
	t.open = transaction{first: t.last + 1, last: unfinished, commitLSN: commitLSN}
	if !commitTime.IsZero() {
		t.open.commitMicros = commitTime.UnixMicro()
	}
}

// Next numbers one more record of the open transaction, which is outstanding
// until it is acknowledged. It panics if no transaction is open.
//
// A row that need not be sent, because an earlier session delivered it, is
// numbered and acknowledged at once: Locate and OpenTransaction count records,
// and are about rows only if every row has a record.
func (t *Tracker) Next() Seq {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Next outside a transaction")
	}
	t.last++
	t.outstanding++
	t.acked.cover(t.base+1, t.last)
	if t.last == t.open.first {
		t.inFlight.push(t.open)
	}
	return t.last
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

// Snapshot notes what pg_current_snapshot() returned in the open transaction. At
// most 64 wait for their transaction to be confirmed; others are dropped, since
// each one is followed by the next. It panics if no transaction is open.
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
func (t *Tracker) Commit(endLSN pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		panic("checkpoint: Commit outside a transaction")
	}
	t.isOpen = false
	if t.last >= t.open.first {
		t.inFlight.tail().last = t.last
	}
	t.extendReach(endLSN)
	if t.snapshot != "" {
		t.carrySnapshot(Snapshot{EndLSN: endLSN, Text: t.snapshot})
		t.snapshot = ""
	}
	t.advance()
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
	return txn.commitLSN, int(seq - txn.first), true
}

// OpenTransaction returns the open transaction, by the LSN of its commit record,
// and how many of its records are acknowledged before the first that is not. If
// the connection is lost in it, so many need not be resent. ok is false if no
// transaction is open.
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
	return t.open.commitLSN, int(end - t.open.first), true
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
	for t.inFlight.len() > 0 && t.inFlight.head().last <= t.base {
		txn := *t.inFlight.head()
		t.inFlight.pop()
		t.confirm(txn.confirms)
		done := txn.confirmed()
		if done.TraceID != ([16]byte{}) {
			t.traces--
		}
		if done.Snapshot.Text != "" {
			t.snapshots--
		}
		t.onConfirmed(done)
	}
}

// confirm raises the confirmed position to lsn. A lower one has no effect.
func (t *Tracker) confirm(lsn pglogrepl.LSN) {
	if uint64(lsn) > t.confirmed.Load() {
		t.confirmed.Store(uint64(lsn))
	}
}
