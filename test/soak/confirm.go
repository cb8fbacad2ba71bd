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

// Confirms compares the positions that a relay confirms with the records that the
// broker has stored. A [Session] passes it the messages of Postgres and of the
// relay, in the order of the connection. A reader of the topics calls Stored. It
// may call Stored at any time after the row was streamed, because Confirms uses
// the time at which the broker appended the record.
//
// The rule: when the relay confirms a position, the broker must have stored all
// rows of every transaction whose commit record begins before the position.
// Postgres never sends these transactions again
// (https://www.postgresql.org/docs/current/logicaldecoding-explanation.html,
// snapbuild.c).
type Confirms struct {
	journal *Journal
	lag     time.Duration // see maxLag

	mu        sync.Mutex
	positions map[pglogrepl.LSN]struct{} // sent by the server: ends of commits and keepalives, from claimed on
	queue     []*walTx                   // commit LSN not before confirmed, ordered by commit LSN
	rows      map[rowKey]*walTx          // streamed, not stored
	refilled  map[rowKey]time.Time       // stored and not streamed, since a slot was lost: when
	claimed   pglogrepl.LSN              // highest position that the relay has confirmed or started from
	confirmed pglogrepl.LSN              // highest position that the relay has confirmed
	slot      pglogrepl.LSN              // the slot's position when it was created, or at the first sample
	lost      bool                       // the slot was dropped, and the relay has not created it again
	everLost  bool                       // a slot was dropped
	updates   int
	again     int       // rows that the server has streamed more than once
	away      int       // current outages of the broker
	back      time.Time // the end of the last outage, which may be in the future, or the last Forgotten
	found     violations

	repeatable map[rowKey]int // how many duplicates of a row have a cause
	process    int            // number of calls of Forgotten
	unanswered bool           // the broker may not respond
}

type rowKey struct {
	aggregate string
	seq       int64
}

// maxLag is usually the maximum time between the last record of a transaction and its
// confirmation, if the relay sends status updates and the broker is available:
// see [Confirms.Outage].
const maxLag = 15 * time.Second

// A walTx is a transaction that the server has streamed, at least in part.
type walTx struct {
	commitLSN pglogrepl.LSN
	id        uuid.UUID // of its first row
	rows      []streamedRow
	left      int           // number of streamed rows that are not yet stored
	complete  bool          // the Commit was streamed
	storedAt  time.Time     // when the broker stored the last row
	claimedAt time.Time     // when the relay confirmed it; zero: not yet
	claimedBy pglogrepl.LSN // the confirmed position
}

type streamedRow struct {
	key     rowKey
	process int // of the relay, to which it was streamed last: see Forgotten
}

// NewConfirms returns a Confirms that adds the commit LSN of each transaction to j.
func NewConfirms(j *Journal) *Confirms {
	return &Confirms{journal: j, lag: maxLag, positions: make(map[pglogrepl.LSN]struct{}), rows: make(map[rowKey]*walTx), refilled: make(map[rowKey]time.Time), repeatable: make(map[rowKey]int)}
}

// atPosition returns a violation at a position.
func atPosition(k delivery.Kind, at time.Time, position pglogrepl.LSN, detail string) Violation {
	return Violation{Violation: delivery.Violation{Kind: k, Detail: detail}, LSN: position, At: at}
}

// Start records that the relay has requested a stream from a position at a time.
// If the position is 0, the stream begins at the slot's position. If the position
// is ahead of the slot, Postgres skips everything before it. So Start checks it
// like a confirmed position. The relay confirms the position later, after it has
// written the position record, and may confirm lower positions before. Until then, a new process
// may start from a lower one.
func (c *Confirms) Start(at time.Time, from pglogrepl.LSN) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isRead(from) {
		c.found.add(atPosition(Unread, at, from, "the stream was started there"))
	}
	c.claim(at, from)
	return &Session{c: c}
}

// isRead reports whether the server has sent the position, or whether the position
// is not higher than claimed.
func (c *Confirms) isRead(lsn pglogrepl.LSN) bool {
	_, ok := c.positions[lsn]
	return ok || lsn <= c.claimed
}

// isNew reports whether a position is higher than those that the relay has confirmed.
func (c *Confirms) isNew(position pglogrepl.LSN) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return position > c.claimed
}

// Forgotten records that a new process of the relay knows only the position record. A row may be a duplicate that is
// streamed to this process, and was streamed before. No position is late until the process had time to send it.
func (c *Confirms) Forgotten(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process++
	if at.After(c.back) {
		c.back = at
	}
}

// copies is how often a record may be stored again whose response is lost. While connections fail, it is sent over one after
// the other.
const copies = 10

// Unanswered records a fault after which the relay does not know whether the broker has stored a record, until the next
// Answered. Each row may be a duplicate that the relay has not confirmed at the beginning, or that is streamed meanwhile.
func (c *Confirms) Unanswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = true
	for _, tx := range c.queue {
		for _, row := range tx.rows {
			c.repeatable[row.key] += copies
		}
	}
}

// Answered records that the broker responds again.
func (c *Confirms) Answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = false
}

// MayRepeat reports whether one more duplicate of a row has a cause: see Forgotten, which explains one, and Unanswered, which
// explains several.
func (c *Confirms) MayRepeat(aggregate string, seq int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := rowKey{aggregate, seq}
	n := c.repeatable[key]
	if n == 1 {
		delete(c.repeatable, key)
	} else if n > 1 {
		c.repeatable[key] = n - 1
	}
	return n > 0
}

// Again returns how many rows the server has streamed more than once so far.
// A relay that has restarted must resend them.
func (c *Confirms) Again() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again
}

// claim checks every transaction that Postgres does not send again after the relay
// has confirmed position.
func (c *Confirms) claim(at time.Time, position pglogrepl.LSN) {
	c.claimed = max(c.claimed, position)
	maps.DeleteFunc(c.positions, func(lsn pglogrepl.LSN, _ struct{}) bool { return lsn < c.claimed })
	for _, tx := range c.queue {
		if tx.commitLSN >= position {
			break
		}
		if !tx.claimedAt.IsZero() {
			continue
		}
		tx.claimedAt, tx.claimedBy = at, position
		if !tx.complete {
			c.found.add(tx.early(fmt.Sprintf("only %d rows of the transaction and not its Commit had been streamed", len(tx.rows))))
		} else if tx.left == 0 && tx.storedAt.After(at) {
			c.found.add(tx.early(fmt.Sprintf("its last row was stored %v later", tx.storedAt.Sub(at))))
		}
	}
}

// confirm records that no process of the relay needs what is before position.
func (c *Confirms) confirm(position pglogrepl.LSN) {
	c.confirmed = max(c.confirmed, position)
	c.queue = slices.DeleteFunc(c.queue, func(tx *walTx) bool { return tx.commitLSN < c.confirmed })
}

// Outage records that the broker is unavailable until over is called. During the
// outage it acknowledges no stored record, and the relay writes no position record.
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

// late checks for how long the oldest unconfirmed transaction has been stored. A relay that refills a lost slot
// confirms nothing before the refill is done.
func (c *Confirms) late(at time.Time) {
	first := slices.IndexFunc(c.queue, func(tx *walTx) bool { return tx.claimedAt.IsZero() })
	if first < 0 || c.away > 0 || c.lost || c.claimed < c.slot { // a refill ends with the slot's position
		return
	}
	tx, since := c.queue[first], c.back
	if tx.storedAt.After(since) {
		since = tx.storedAt
	}
	if waited := at.Sub(since); tx.complete && tx.left == 0 && len(tx.rows) > 0 && waited > c.lag {
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

// Stored records that the broker stored an event at the time since.
func (c *Confirms) Stored(e Event, where delivery.Coordinates, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := rowKey{e.Aggregate, e.Seq}
	tx := c.rows[key]
	if tx == nil { // a duplicate, or refilled before the last bytes of the lost slot have passed the proxy
		if c.everLost {
			c.refilled[key] = since
		}
		return
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

// Slot records a confirmed_flush_lsn of the slot. The slot must not advance beyond
// the position that the relay has confirmed. The first call sets the initial
// position. While the slot is lost, another program may have created one of its name.
func (c *Confirms) Slot(at time.Time, confirmed pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot == 0 {
		c.slot = confirmed
	}
	if !c.lost && confirmed > max(c.slot, c.claimed) {
		c.found.add(atPosition(Moved, at, confirmed, fmt.Sprintf("the relay has confirmed no more than %s", c.claimed)))
	}
}

// SlotLost records that the slot is dropped.
func (c *Confirms) SlotLost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost, c.everLost = true, true
}

// SlotCreated records that the relay has created the slot again, which delivers from position. Postgres
// sends none of the earlier transactions again. So the rows of a transaction that the lost slot had begun to
// stream must be stored when the relay confirms position, as if all of it had been streamed.
func (c *Confirms) SlotCreated(position pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tx := range c.queue {
		tx.complete = true
	}
	c.lost, c.slot = false, position
	c.positions[position] = struct{}{}
}

// Finish checks that the broker has stored all rows of every confirmed
// transaction. Before Finish, the caller must call Stored for every record. Call
// Finish once.
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
		v := tx.early(fmt.Sprintf("%d of the transaction's %d rows were never stored", tx.left, len(tx.rows)))
		v.Kind, v.Aggregate, v.Seq = Never, missing[tx].aggregate, missing[tx].seq
		c.found.add(v)
	}
}

// Violations returns the first violations found so far and the total number.
func (c *Confirms) Violations() (first []Violation, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.found.first), c.found.all
}

// Updates returns the number of status updates that the relay has sent.
func (c *Confirms) Updates() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates
}
