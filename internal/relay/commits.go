package relay

import (
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// commits knows when the transactions that are not confirmed yet were committed: how far the
// relay is behind, and, when one is confirmed, how long that took. It is told of each
// transaction twice and of each answer of the sink once, and never of a row.
//
// begin, drop and settle of the reading goroutine come in the order of the stream; settle and
// oldest may be called from any goroutine.
type commits struct {
	delivered func(sinceCommit time.Duration, traceID string) // Config.Delivered; may be nil

	mu      sync.Mutex
	tracker *checkpoint.Tracker
	ring    []committed // its length is a power of two
	first   int
	n       int
	traces  map[pglogrepl.LSN]traceID // that a transaction's first record with a span is in, at most maxTraces
}

// maxTraces bounds what is kept of traces: they are examples.
const maxTraces = 1024

// A committed is a transaction. It is confirmed when a position behind its commit record is.
type committed struct {
	lsn    pglogrepl.LSN // of the commit record
	micros int64         // Unix time of the commit
}

// reset begins anew: what a session has not confirmed comes again in the next one.
func (c *commits) reset(t *checkpoint.Tracker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracker, c.first, c.n = t, 0, 0
	clear(c.traces)
}

// begin notes a transaction that was begun to be read.
func (c *commits) begin(lsn pglogrepl.LSN, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == len(c.ring) {
		grown := make([]committed, max(64, 2*len(c.ring)))
		for i := range c.n {
			grown[i] = c.ring[(c.first+i)&(len(c.ring)-1)]
		}
		c.ring, c.first = grown, 0
	}
	c.ring[(c.first+c.n)&(len(c.ring)-1)] = committed{lsn, at.UnixMicro()}
	c.n++
}

// trace notes a trace that a record of the newest one is in.
func (c *commits) trace(lsn pglogrepl.LSN, id traceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traces == nil {
		c.traces = make(map[pglogrepl.LSN]traceID)
	}
	if _, known := c.traces[lsn]; !known && len(c.traces) < maxTraces {
		c.traces[lsn] = id
	}
}

// traced takes out the trace of a transaction; empty if none is known. c.mu is held.
func (c *commits) traced(lsn pglogrepl.LSN) string {
	id, ok := c.traces[lsn]
	if !ok {
		return ""
	}
	delete(c.traces, lsn)
	return id.String()
}

// drop forgets the newest one: nothing of it was sent.
func (c *commits) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
}

// settle takes out what the tracker confirms.
func (c *commits) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return
	}
	confirmed := c.tracker.Confirmed()
	if c.ring[c.first].lsn >= confirmed {
		return
	}
	now := time.Now().UnixMicro()
	for c.n > 0 && c.ring[c.first].lsn < confirmed {
		oldest := c.ring[c.first]
		traceID := ""
		if len(c.traces) > 0 {
			traceID = c.traced(oldest.lsn)
		}
		if c.delivered != nil {
			c.delivered(time.Duration(max(0, now-oldest.micros))*time.Microsecond, traceID)
		}
		c.first = (c.first + 1) & (len(c.ring) - 1)
		c.n--
	}
}

// oldest returns when the first of those that are not confirmed was committed; the zero time
// if there is none.
func (c *commits) oldest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(c.ring[c.first].micros)
}
