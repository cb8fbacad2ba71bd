package soak

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A Journal records the transactions of the writers. A transaction is in it before
// its first row can be in a topic.
type Journal struct {
	mu        sync.Mutex
	log       io.Writer // nil: none
	err       error     // of writing to log
	txs       map[uuid.UUID]*entry
	order     []uuid.UUID
	committed int // rows
	finished  int // transactions that are committed
}

type entry struct {
	sequences []delivery.Sequence
	rows      int
	begun     time.Time
	fate      delivery.Fate
	commitLSN pglogrepl.LSN // 0: unknown
}

// NewJournal returns an empty journal. If log is not nil, the journal also writes
// one line per step to it. Read it after a failure.
func NewJournal(log io.Writer) *Journal {
	return &Journal{log: log, txs: make(map[uuid.UUID]*entry)}
}

// Begin adds a transaction and its rows, in order, before the transaction can
// commit. begun is a time before its first row was written. The journal retains
// sequences.
func (j *Journal) Begin(tx uuid.UUID, begun time.Time, sequences []delivery.Sequence) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &entry{sequences: sequences, begun: begun, fate: delivery.InDoubt}
	for _, s := range sequences {
		e.rows += s.Rows
	}
	j.txs[tx] = e
	j.order = append(j.order, tx)
	j.write("%s begin %s %v\n", begun.UTC().Format(time.RFC3339Nano), tx, sequences)
}

// Resolve sets the fate of a transaction that Begin has added. The last call
// counts.
func (j *Journal) Resolve(tx uuid.UUID, f delivery.Fate) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.txs[tx]
	if f == delivery.Committed && e.fate != delivery.Committed {
		j.committed += e.rows
		j.finished++
	}
	e.fate = f
	j.write("%s %s\n", f, tx)
}

func (j *Journal) write(format string, args ...any) {
	if j.log == nil || j.err != nil {
		return
	}
	_, j.err = fmt.Fprintf(j.log, format, args...)
}

// Err returns the first error of writing to the journal's file.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Located sets the commit LSN of a transaction, for messages.
func (j *Journal) Located(tx uuid.UUID, commitLSN pglogrepl.LSN) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.txs[tx]; e != nil {
		e.commitLSN = commitLSN
	}
}

// Unresolved returns the transactions whose fate is still InDoubt.
func (j *Journal) Unresolved() []uuid.UUID {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []uuid.UUID
	for tx, e := range j.txs {
		if e.fate == delivery.InDoubt {
			all = append(all, tx)
		}
	}
	return all
}

// Committed returns the number of transactions that are known to be committed, and
// the number of their rows.
func (j *Journal) Committed() (transactions, rows int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.finished, j.committed
}

// lookup returns the entry of a transaction.
func (j *Journal) lookup(tx uuid.UUID) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.txs[tx]; e != nil {
		return *e, true
	}
	return entry{}, false
}

// inOrder returns the transactions in the order of the calls of Begin.
func (j *Journal) inOrder() []uuid.UUID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.order)
}

// row returns the aggregate and number of a row of e.
func (e *entry) row(index int) (aggregate string, seq int64, ok bool) {
	for _, s := range e.sequences {
		if index >= 0 && index < s.Rows {
			return s.Aggregate, s.First + int64(index), true
		}
		index -= s.Rows
	}
	return "", 0, false
}
