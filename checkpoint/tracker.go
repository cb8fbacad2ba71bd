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
// It is the only record of what is in flight. A transaction carries with it what
// others need when it is confirmed, and is handed out then: see [Transaction].
//
// Begin, Next, Trace, Snapshot, Commit and Keepalive tell it what was read and
// belong to the one goroutine that reads; all other methods may be called from
// any goroutine. No method blocks on anything but the other methods, all of them
// short, and the function given to New.
//
// Its memory is one bit per record and 48 bytes per transaction in Span: the
// size of a transaction does not matter, only how far the newest record is
// ahead of the oldest unacknowledged one.
type Tracker struct {
	confirmed atomic.Uint64 // an LSN; written under mu, never decreases
	handOut   func(Transaction)

	mu          sync.Mutex
	base        Seq         // every record <= base is acknowledged
	last        Seq         // the newest record; base <= last
	outstanding int         // how many records in (base, last] are not acknowledged
	acked       window      // which records in (base, last] are acknowledged
	queue       queue       // the transactions with a record > base, and the open one if it has records
	open        transaction // the transaction being read; meaningful while isOpen
	isOpen      bool
	snapshot    string // of the open transaction
	traces      int    // in queue
	snapshots   int    // in queue
}

// New returns a Tracker that has nothing outstanding and confirms start, the
// position the session starts from. Zero stands for "where the slot is": it
// confirms nothing until something else is.
//
// Each transaction is handed out once, in commit order, when it is confirmed and
// if it has a record or a snapshot; Confirmed includes it by then. handOut is
// called by whichever goroutine completes it, one call at a time. It must not
// block nor call a method other than Confirmed. Nil: nobody wants them.
func New(start pglogrepl.LSN, handOut func(Transaction)) *Tracker {
	if handOut == nil {
		handOut = func(Transaction) {}
	}
	t := &Tracker{handOut: handOut, acked: newWindow(), queue: newQueue()}
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
// numbered and acknowledged at once: Locate and Open count records, and are
// about rows only if every row has a record.
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
		t.queue.push(t.open)
	}
	return t.last
}

// Trace notes that the record numbered last is part of a trace. A transaction
// keeps the first one; traces are examples, so at most 1,024 transactions in
// flight have one. It panics if the open transaction has no record.
func (t *Tracker) Trace(id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen || t.last < t.open.first {
		panic("checkpoint: Trace without a record")
	}
	if t.traces == maxTraces {
		return
	}
	if n := t.queue.tail().note(); n.traceID == ([16]byte{}) {
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
		t.queue.tail().last = t.last
	}
	t.reach(endLSN)
	if t.snapshot != "" {
		t.carry(Snapshot{EndLSN: endLSN, Text: t.snapshot})
		t.snapshot = ""
	}
	t.advance()
}

// Keepalive reports a keepalive of the server with the position walEnd, read
// after everything reported so far. It is without effect while a transaction is
// open, also later.
func (t *Tracker) Keepalive(walEnd pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		t.reach(walEnd)
	}
}

// Ack marks records as delivered. A Seq that was never issued or is acknowledged
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

// Confirmed returns the position the server may be told: nothing before it is
// missing. It never decreases. It is a single atomic load.
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
// with it memory and what a crash would send twice: whoever feeds the Tracker
// bounds it.
func (t *Tracker) Span() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.last - t.base)
}

// Oldest returns the commit time of the oldest transaction that has one, has
// records and is not confirmed; the zero time if there is none.
func (t *Tracker) Oldest() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.queue.len() {
		if txn := t.queue.at(i); txn.commitMicros != 0 {
			return txn.commitTime()
		}
	}
	return time.Time{}
}

// Locate tells which record of which transaction an unacknowledged record is:
// the transaction by the LSN of its commit record, the record by its index from
// 0. ok is false if seq is not outstanding.
func (t *Tracker) Locate(seq Seq) (commitLSN pglogrepl.LSN, index int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq <= t.base || seq > t.last || t.acked.has(seq) {
		return 0, 0, false
	}
	txn := t.queue.find(seq)
	return txn.commitLSN, int(seq - txn.first), true
}

// Open tells, for a session that was cut in the middle of a transaction, which
// one it was, by the LSN of its commit record, and how many of its records are
// acknowledged before the first that is not: when the transaction comes again,
// so many need not be sent. ok is false if no transaction is open.
func (t *Tracker) Open() (commitLSN pglogrepl.LSN, acked int, ok bool) {
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

// reach notes that lsn may be confirmed once every record up to the newest is
// acknowledged. No transaction is open.
func (t *Tracker) reach(lsn pglogrepl.LSN) {
	if t.queue.len() == 0 {
		t.confirm(lsn)
		return
	}
	txn := t.queue.tail()
	txn.reach = max(txn.reach, lsn)
}

// carry has the newest transaction in the queue carry s, which is delivered when
// all of the queue is; at once if nothing is queued.
func (t *Tracker) carry(s Snapshot) {
	if t.queue.len() == 0 {
		t.handOut(Transaction{Snapshot: s})
		return
	}
	if t.snapshots == maxSnapshotsInFlight {
		return
	}
	n := t.queue.tail().note()
	if n.snapshot.Text == "" {
		t.snapshots++
	}
	n.snapshot = s
}

// advance moves base over what has been acknowledged, and confirms and hands out
// what it has passed.
func (t *Tracker) advance() {
	t.base = t.acked.consume(t.base, t.last)
	for t.queue.len() > 0 && t.queue.head().last <= t.base {
		txn := *t.queue.head()
		t.queue.pop()
		t.confirm(txn.reach)
		done := txn.done()
		if done.TraceID != ([16]byte{}) {
			t.traces--
		}
		if done.Snapshot.Text != "" {
			t.snapshots--
		}
		t.handOut(done)
	}
}

// confirm raises the confirmed position to lsn; a lower one is no news.
func (t *Tracker) confirm(lsn pglogrepl.LSN) {
	if uint64(lsn) > t.confirmed.Load() {
		t.confirmed.Store(uint64(lsn))
	}
}
