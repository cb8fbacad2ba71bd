package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// Confirms checks what a relay tells Postgres against what is in the broker's
// log. It is told, in the order in which it happens on the wire, what the
// server sends and what the relay answers (see [Session]), and by a reader of
// the topics what is Stored. A row is streamed before it can be stored, so
// Stored may come at any later time: it is judged by when the broker appended
// the record.
//
// The rule: when a position is confirmed, every transaction whose commit record
// begins before it is in the log, whole. Those are what the server will never
// send again (https://www.postgresql.org/docs/current/logicaldecoding-explanation.html,
// snapbuild.c).
type Confirms struct {
	journal *Journal

	mu        sync.Mutex
	positions map[pglogrepl.LSN]struct{} // sent by the server: commit ends and keepalives, from claimed on
	queue     []*walTx                   // not claimed, by commit LSN
	rows      map[rowKey]*walTx          // streamed, not stored
	claimed   pglogrepl.LSN              // highest position confirmed or started from
	slot      pglogrepl.LSN              // where the slot was seen first
	updates   int
	again     int       // rows streamed that had been streamed before
	away      int       // outages of the broker that go on
	back      time.Time // the end of the last one, which may be ahead
	found     violations
}

type rowKey struct {
	aggregate string
	seq       int64
}

// maxLag is how long a transaction may be stored and not confirmed while the
// relay reports positions and the broker is there: see [Confirms.Outage].
const maxLag = 15 * time.Second

// A walTx is a transaction as the server has streamed it.
type walTx struct {
	commitLSN pglogrepl.LSN
	id        uuid.UUID     // of its first row
	known     int           // rows streamed
	left      int           // of them, rows not yet stored
	complete  bool          // the Commit was streamed
	storedAt  time.Time     // of the row stored last
	claimedAt time.Time     // zero: not yet
	claimedBy pglogrepl.LSN // the position that covers it
}

// NewConfirms returns a Confirms that tells j where transactions are in the log.
func NewConfirms(j *Journal) *Confirms {
	return &Confirms{journal: j, positions: make(map[pglogrepl.LSN]struct{}), rows: make(map[rowKey]*walTx)}
}

// atPosition returns a violation that a position shows.
func atPosition(k delivery.Kind, at time.Time, position pglogrepl.LSN, detail string) Violation {
	return Violation{Violation: delivery.Violation{Kind: k, Detail: detail}, LSN: position, At: at}
}

// Start notes that the relay has asked for a stream from a position at a time;
// 0 leaves the choice to the slot. The server obeys a position ahead of the
// slot, so the same rule holds as for a confirmed position. It is confirmed
// only later, when it is recorded: lower positions may be confirmed before.
func (c *Confirms) Start(at time.Time, from pglogrepl.LSN) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isRead(from) {
		c.found.add(atPosition(Unread, at, from, "the stream was started there"))
	}
	c.claim(at, from)
	return &Session{c: c}
}

// isRead reports whether the server has sent the position, or it covers nothing
// new.
func (c *Confirms) isRead(lsn pglogrepl.LSN) bool {
	_, ok := c.positions[lsn]
	return ok || lsn <= c.claimed
}

// Again returns how many rows the server has streamed more than once so far.
// A relay that lost its memory cannot but repeat them.
func (c *Confirms) Again() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again
}

// claim judges every transaction that the server will not send again.
func (c *Confirms) claim(at time.Time, position pglogrepl.LSN) {
	c.claimed = max(c.claimed, position)
	maps.DeleteFunc(c.positions, func(lsn pglogrepl.LSN, _ struct{}) bool { return lsn < c.claimed })
	n := 0
	for ; n < len(c.queue) && c.queue[n].commitLSN < position; n++ {
		tx := c.queue[n]
		tx.claimedAt, tx.claimedBy = at, position
		if !tx.complete {
			c.found.add(tx.early(fmt.Sprintf("only %d rows of the transaction and not its Commit had been streamed", tx.known)))
		} else if tx.left == 0 && tx.storedAt.After(at) {
			c.found.add(tx.early(fmt.Sprintf("its last row was stored %v later", tx.storedAt.Sub(at))))
		}
	}
	c.queue = slices.Delete(c.queue, 0, n)
}

// Outage notes that the broker is away until over is called: what it has stored
// is not acknowledged meanwhile, and no position recorded.
func (c *Confirms) Outage() (over func(at time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away++
	return func(at time.Time) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.away--
		if at.After(c.back) {
			c.back = at
		}
	}
}

// late judges the oldest transaction that is not confirmed.
func (c *Confirms) late(at time.Time) {
	if len(c.queue) == 0 || c.away > 0 {
		return
	}
	tx, since := c.queue[0], c.back
	if tx.storedAt.After(since) {
		since = tx.storedAt
	}
	if waited := at.Sub(since); tx.complete && tx.left == 0 && tx.known > 0 && waited > maxLag {
		v := atPosition(Late, at, tx.commitLSN, fmt.Sprintf("it was stored, and could be confirmed for %v", waited))
		v.Tx = tx.id
		c.found.add(v)
	}
}

func (tx *walTx) early(detail string) Violation {
	v := atPosition(Early, tx.claimedAt, tx.commitLSN, fmt.Sprintf("position %s was confirmed; %s", tx.claimedBy, detail))
	v.Tx = tx.id
	return v
}

// Stored notes that an event is in a topic since a time.
func (c *Confirms) Stored(e Event, where delivery.Coordinates, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := rowKey{e.Aggregate, e.Seq}
	tx := c.rows[key]
	if tx == nil {
		return // a repetition
	}
	delete(c.rows, key)
	tx.left--
	if since.After(tx.storedAt) {
		tx.storedAt = since
	}
	if !tx.claimedAt.IsZero() && since.After(tx.claimedAt) {
		v := tx.early(fmt.Sprintf("the record was stored %v later", since.Sub(tx.claimedAt)))
		v.Record, v.Aggregate, v.Seq, v.Tx = where, e.Aggregate, e.Seq, e.Tx
		c.found.add(v)
	}
}

// Slot notes where the slot was seen: it moves only as far as the relay says.
// The first call says where it is at the beginning.
func (c *Confirms) Slot(at time.Time, confirmed pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot == 0 {
		c.slot = confirmed
	}
	if confirmed > max(c.slot, c.claimed) {
		c.found.add(atPosition(Moved, at, confirmed, fmt.Sprintf("the relay has confirmed no more than %s", c.claimed)))
	}
}

// Finish checks that everything confirmed was stored in the end. By then every
// record must have been handed over. It is called once.
func (c *Confirms) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := make(map[*walTx]rowKey)
	for key, tx := range c.rows {
		if tx.claimedAt.IsZero() {
			continue
		}
		if first, ok := missing[tx]; !ok || key.aggregate < first.aggregate || key.aggregate == first.aggregate && key.seq < first.seq {
			missing[tx] = key
		}
	}
	txs := slices.SortedFunc(maps.Keys(missing), func(a, b *walTx) int { return cmp.Compare(a.commitLSN, b.commitLSN) })
	for _, tx := range txs {
		v := tx.early(fmt.Sprintf("%d of the transaction's %d rows were never stored", tx.left, tx.known))
		v.Kind, v.Aggregate, v.Seq = Never, missing[tx].aggregate, missing[tx].seq
		c.found.add(v)
	}
}

// Violations returns the first violations found so far and the number of all.
func (c *Confirms) Violations() (first []Violation, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.found.first), c.found.all
}

// Updates returns how many status updates were judged.
func (c *Confirms) Updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates
}
