package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// A Session is one replication stream. Its methods are called in the order of
// the wire in each direction, and with what the server sends before the relay
// can have read it.
type Session struct {
	c    *Confirms
	open *walTx        // being streamed; nil: none, or one that is claimed already
	row  int           // how many rows of the open transaction have come
	last pglogrepl.LSN // confirmed last
}

// watch returns what has a proxy tell c of the events of a run.
func (c *Confirms) watch(run string) func(time.Time, pglogrepl.LSN) walproxy.Watcher {
	return func(at time.Time, from pglogrepl.LSN) walproxy.Watcher { return watcher{c.Start(at, from), run} }
}

// A watcher is a session that is told of inserted rows as they are on the wire.
type watcher struct {
	*Session
	run string
}

// Insert notes a row that is an event of the run.
func (w watcher) Insert(body []byte) {
	if e, ok := FindEvent(body, w.run); ok {
		w.Row(e)
	}
}

// Begin notes a transaction's Begin.
func (s *Session) Begin(commitLSN pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.open, s.row = nil, 0
	if commitLSN < c.claimed {
		return // streamed again; it was judged when it was claimed
	}
	i, known := slices.BinarySearchFunc(c.queue, commitLSN, func(tx *walTx, lsn pglogrepl.LSN) int {
		return cmp.Compare(tx.commitLSN, lsn)
	})
	if !known {
		c.queue = slices.Insert(c.queue, i, &walTx{commitLSN: commitLSN})
	}
	s.open = c.queue[i]
}

// Row notes a row of the transaction begun last.
func (s *Session) Row(e Event) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.row++
	tx := s.open
	if tx == nil || s.row <= tx.known {
		c.again++
		return
	}
	tx.known++
	tx.left++
	if tx.known == 1 {
		tx.id = e.Tx
		c.journal.Located(e.Tx, tx.commitLSN)
	}
	c.rows[rowKey{e.Aggregate, e.Seq}] = tx
}

// Commit notes the Commit of the transaction begun last.
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

// Keepalive notes a position of a keepalive.
func (s *Session) Keepalive(walEnd pglogrepl.LSN) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.positions[walEnd] = struct{}{}
}

// Status notes that the relay has confirmed flush, at a time that is not before
// the relay did. 0 confirms nothing.
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
}
