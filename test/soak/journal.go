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

// A Journal is what the writers say they did. A transaction is in it before its
// first row can be in a topic.
type Journal struct {
	mu        sync.Mutex
	log       io.Writer // nil: none
	err       error     // of log
	txs       map[uuid.UUID]*entry
	order     []uuid.UUID
	committed int // rows
	finished  int // transactions that are committed
}

type entry struct {
	spans     []delivery.Span
	rows      int
	begun     time.Time
	fate      delivery.Fate
	commitLSN pglogrepl.LSN // 0: not known
}

// NewJournal returns an empty journal. If log is not nil every step is also
// written there, one line each: for a person, after a failure.
func NewJournal(log io.Writer) *Journal {
	return &Journal{log: log, txs: make(map[uuid.UUID]*entry)}
}

// Begin notes a transaction with its rows, in order, before it can be committed.
// begun is a time before its first row was written. The journal keeps spans.
func (j *Journal) Begin(tx uuid.UUID, begun time.Time, spans []delivery.Span) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &entry{spans: spans, begun: begun, fate: delivery.InDoubt}
	for _, s := range spans {
		e.rows += s.Rows
	}
	j.txs[tx] = e
	j.order = append(j.order, tx)
	j.write("%s begin %s %v\n", begun.UTC().Format(time.RFC3339Nano), tx, spans)
}

// Resolve notes how a transaction that was begun has ended, as far as is known.
// The last word counts.
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

// Err returns why the journal's file is not complete, if it is not.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Located notes the commit LSN of a transaction, for messages.
func (j *Journal) Located(tx uuid.UUID, commitLSN pglogrepl.LSN) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.txs[tx]; e != nil {
		e.commitLSN = commitLSN
	}
}

// Unresolved returns the transactions whose fate nobody has told.
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

// Committed returns how many transactions are known to be committed, and their
// rows.
func (j *Journal) Committed() (transactions, rows int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.finished, j.committed
}

// lookup returns what is known of a transaction.
func (j *Journal) lookup(tx uuid.UUID) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.txs[tx]; e != nil {
		return *e, true
	}
	return entry{}, false
}

// inOrder returns the transactions in the order in which they were begun.
func (j *Journal) inOrder() []uuid.UUID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.order)
}

// row returns the event's aggregate and number that a row of e has.
func (e *entry) row(index int) (aggregate string, seq int64, ok bool) {
	for _, s := range e.spans {
		if index >= 0 && index < s.Rows {
			return s.Aggregate, s.First + int64(index), true
		}
		index -= s.Rows
	}
	return "", 0, false
}
