package checkpoint

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
)

// A Seq numbers the records of one Tracker in the order they were read. The
// first is 1; zero is no record.
type Seq uint64

// A Tracker computes the position a replication session may confirm.
//
// Begin, Next, Commit and Keepalive tell it what was read and belong to the one
// goroutine that reads; all other methods may be called from any goroutine.
// No method blocks on anything but the other methods, all of them short.
//
// Its memory is one bit per record and 32 bytes per transaction in Span: the
// size of a transaction does not matter, only how far the newest record is
// ahead of the oldest unacknowledged one.
type Tracker struct {
	confirmed atomic.Uint64 // an LSN; written under mu, never decreases

	mu          sync.Mutex
	base        Seq         // every record <= base is acknowledged
	last        Seq         // the newest record; base <= last
	outstanding int         // how many records in (base, last] are not acknowledged
	acked       window      // which records in (base, last] are acknowledged
	queue       queue       // the transactions with a record > base, and the open one if it has records
	open        transaction // the transaction being read; meaningful while isOpen
	isOpen      bool
}

// New returns a Tracker that has nothing outstanding and confirms start, the
// position the session starts from. Zero stands for "where the slot is": it
// confirms nothing until something else is.
func New(start pglogrepl.LSN) *Tracker {
	t := &Tracker{acked: newWindow(), queue: newQueue()}
	t.confirmed.Store(uint64(start))
	return t
}

// Begin opens the transaction whose commit record is at commitLSN. Until its
// Commit, keepalives do not count. It panics if a transaction is open.
func (t *Tracker) Begin(commitLSN pglogrepl.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOpen {
		panic("checkpoint: Begin inside a transaction")
	}
	t.isOpen = true
	t.open = transaction{first: t.last + 1, last: unfinished, commitLSN: commitLSN}
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
	t.settle()
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
	defer t.settle()
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

// settle moves base over what has been acknowledged and confirms what it has
// passed.
func (t *Tracker) settle() {
	t.base = t.acked.consume(t.base, t.last)
	for t.queue.len() > 0 && t.queue.head().last <= t.base {
		t.confirm(t.queue.head().reach)
		t.queue.pop()
	}
}

// confirm raises the confirmed position to lsn; a lower one is no news.
func (t *Tracker) confirm(lsn pglogrepl.LSN) {
	if uint64(lsn) > t.confirmed.Load() {
		t.confirmed.Store(uint64(lsn))
	}
}
