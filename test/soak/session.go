package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// A Session is one replication stream. The proxy calls its methods in the order of
// the messages of each direction. For a message of the server, it calls them
// before it forwards the message to the relay.
type Session struct {
	c    *Confirms
	open *walTx        // the transaction that the server streams; nil: none, or one that is already confirmed
	row  int           // number of rows of the open transaction so far
	last pglogrepl.LSN // the highest position that the session has confirmed
}

// watch returns a function for walproxy.Config.Watch that passes the events of a
// run to c.
//
// A broker may not say when it has stored a record. Then readAll is not nil, and
// Stored gets the time at which the reader has read the record. The proxy holds back
// each new position of the relay until readAll has returned, which calls Stored for
// every record that is stored. A record that the broker stores in the meantime is
// not found to be late.
func (c *Confirms) watch(run string, readAll func()) func(time.Time, pglogrepl.LSN) walproxy.Watcher {
	return func(at time.Time, from pglogrepl.LSN) walproxy.Watcher {
		w := watcher{run: run, readAll: readAll}
		w.Session = c.Start(w.read(c, at, from), from)
		return w
	}
}

// A watcher is a Session that parses the events of a run from the Insert messages.
type watcher struct {
	*Session
	run     string
	readAll func()
}

// Status records a position.
func (w watcher) Status(at time.Time, flush pglogrepl.LSN) {
	w.Session.Status(w.read(w.c, at, flush), flush)
}

// read returns the time with which records may be compared that were stored before a position was confirmed.
func (w watcher) read(c *Confirms, at time.Time, position pglogrepl.LSN) time.Time {
	if w.readAll == nil || !c.isNew(position) {
		return at
	}
	w.readAll()
	return time.Now()
}

// Insert records the row if it is an event of the run.
func (w watcher) Insert(body []byte) {
	if e, ok := FindEvent(body, w.run); ok {
		w.Row(e)
	}
}

// Begin records the Begin of a transaction.
func (s *Session) Begin(commitLSN pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.open, s.row = nil, 0
	i, known := slices.BinarySearchFunc(c.queue, commitLSN, func(tx *walTx, lsn pglogrepl.LSN) int {
		return cmp.Compare(tx.commitLSN, lsn)
	})
	switch {
	case known:
	case commitLSN < c.claimed:
		return // streamed again; claim has already checked it
	default:
		c.queue = slices.Insert(c.queue, i, &walTx{commitLSN: commitLSN})
	}
	s.open = c.queue[i]
}

// Row records a row of the open transaction.
func (s *Session) Row(e Event) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.row++
	tx := s.open
	key := rowKey{e.Aggregate, e.Seq}
	if tx == nil || s.row <= len(tx.rows) {
		c.again++
		if tx != nil && tx.rows[s.row-1].process != c.process {
			tx.rows[s.row-1].process = c.process
			c.repeatable[key]++
		}
		return
	}
	tx.rows = append(tx.rows, streamedRow{key, c.process})
	if c.unanswered {
		c.repeatable[key] += copies
	}
	if len(tx.rows) == 1 {
		tx.id = e.Tx
		c.journal.Located(e.Tx, tx.commitLSN)
	}
	if at, ok := c.refilled[key]; ok {
		delete(c.refilled, key)
		if at.After(tx.storedAt) {
			tx.storedAt = at
		}
		return
	}
	tx.left++
	c.rows[key] = tx
}

// Commit records the Commit of the open transaction.
func (s *Session) Commit(endLSN pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.open != nil {
		s.open.complete = true
	}
	s.open = nil
	c.positions[endLSN] = struct{}{}
}

// Keepalive records the position of a keepalive.
func (s *Session) Keepalive(walEnd pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.positions[walEnd] = struct{}{}
}

// Status records that the relay has confirmed flush. at is when the proxy received
// the status update. If flush is 0, the update confirms no position.
func (s *Session) Status(at time.Time, flush pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates++
	if flush != 0 {
		s.judge(at, flush)
	}
	c.late(at)
}

func (s *Session) judge(at time.Time, flush pglogrepl.LSN) {
	c := s.c
	if flush < s.last {
		c.found.add(atPosition(WentBack, at, flush, fmt.Sprintf("%s was confirmed before, in the same session", s.last)))
	}
	if !c.isRead(flush) {
		c.found.add(atPosition(Unread, at, flush, ""))
	}
	s.last = max(s.last, flush)
	c.claim(at, flush)
	c.confirm(flush)
}
