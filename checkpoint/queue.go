package checkpoint

import (
	"math"
	"sort"
	"time"

	"github.com/jackc/pglogrepl"
)

// unfinished is the value of transaction.last until the Commit is read. It is higher than
// any Seq, so the transaction stays in the queue.
const unfinished Seq = math.MaxUint64

// A transaction is in flight: at least one of its records is not acknowledged, or its
// Commit is not read.
type transaction struct {
	first, last Seq
	commitLSN   pglogrepl.LSN
	// confirms is the position to confirm once every record <= last is acknowledged: the end
	// LSN, or a higher position that was read before the next record.
	confirms     pglogrepl.LSN
	commitMicros int64  // Unix time; 0: unknown
	notes        *notes // nil: none

	later Landmark // the last one before confirms, if that transaction has no records and so is not in flight; zero: none
}

// notes are values that only a few transactions have.
type notes struct {
	traceID  [16]byte
	snapshot Snapshot
}

const (
	maxTraces            = 1024
	maxSnapshotsInFlight = 64
)

// ensureNotes returns the notes of txn. It creates them if txn has none.
func (txn *transaction) ensureNotes() *notes {
	if txn.notes == nil {
		txn.notes = new(notes)
	}
	return txn.notes
}

func (txn *transaction) commitTime() time.Time {
	if txn.commitMicros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(txn.commitMicros)
}

func (txn *transaction) landmark() Landmark { return Landmark{txn.commitLSN, txn.commitMicros} }

// newest returns the last transaction before the position that txn confirms.
func (txn *transaction) newest() Landmark {
	if txn.later == (Landmark{}) {
		return txn.landmark()
	}
	return txn.later
}

// confirmed returns the argument of onConfirmed for txn.
func (txn *transaction) confirmed() Transaction {
	done := Transaction{CommitTime: txn.commitTime()}
	if n := txn.notes; n != nil {
		done.TraceID, done.Snapshot = n.traceID, n.snapshot
	}
	return done
}

// A Transaction is a confirmed transaction.
type Transaction struct {
	CommitTime time.Time // zero: unknown
	TraceID    [16]byte  // the first trace of its records; zero: none
	Snapshot   Snapshot  // the newest one read in it, or after it and before the next record; no text: none
}

// keepTransactions is the size up to which a queue keeps its memory. A larger queue is
// halved when it is an eighth full. See keepWords.
const keepTransactions = 1 << 16

// A queue holds transactions in the order in which they were read. Their records are
// consecutive: the first record of each follows the last record of the one before.
type queue struct {
	ring  []transaction // its length is a power of two
	start int           // the oldest is ring[start]
	count int
}

func newQueue() queue {
	return queue{ring: make([]transaction, 1)}
}

func (q *queue) len() int { return q.count }

// at returns the i-th oldest transaction. The pointer is valid until the next push or
// pop.
func (q *queue) at(i int) *transaction {
	return &q.ring[(q.start+i)&(len(q.ring)-1)]
}

func (q *queue) head() *transaction { return q.at(0) }

func (q *queue) tail() *transaction { return q.at(q.count - 1) }

func (q *queue) push(txn transaction) {
	if q.count == len(q.ring) {
		q.resize(2 * len(q.ring))
	}
	q.count++
	*q.tail() = txn
}

// pop removes the oldest transaction.
func (q *queue) pop() {
	q.start = (q.start + 1) & (len(q.ring) - 1)
	q.count--
	if len(q.ring) > keepTransactions && q.count <= len(q.ring)/8 {
		q.resize(len(q.ring) / 2)
	}
}

// dropTail removes the newest transaction.
func (q *queue) dropTail() { q.count-- }

// find returns the transaction that has the record seq, which must be in the queue.
func (q *queue) find(seq Seq) *transaction {
	after := sort.Search(q.count, func(i int) bool { return q.at(i).first > seq })
	return q.at(after - 1)
}

func (q *queue) resize(size int) {
	ring := make([]transaction, size)
	for i := range q.count {
		ring[i] = *q.at(i)
	}
	q.ring, q.start = ring, 0
}
