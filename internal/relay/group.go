package relay

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The limits of a group. One that ends inside a transaction of the source makes the first rows of that transaction
// visible before the others.
const (
	// groupAge is how old a group may get while further transactions wait to be sent. As long as they wait, each
	// group may get twice as old as the last one, up to backlogAge: a transaction costs the broker some milliseconds, and
	// rows that wait behind a backlog do not gain from small ones.
	groupAge   = 10 * time.Millisecond
	backlogAge = 200 * time.Millisecond

	// backlogPause is how long Postgres must send nothing until a group that works off a backlog ends.
	backlogPause = 2 * time.Millisecond

	// groupRows and groupBytes limit what is sent again after a crash.
	groupRows  = 50_000
	groupBytes = 16 << 20

	// maxGroupAge limits the time for which a group waits for the rest of a transaction of the source. It is far
	// less than transaction.timeout.ms.
	maxGroupAge = time.Second
)

// A grouper decides which records a sink.TransactionalWriter commits together, and with which position record. A group
// ends at the end of a source transaction, when no message of Postgres waits or the group is old, and the last group is
// committed. Meanwhile the pump sends records for the next group.
//
// So in a tenure with a grouper, only the writer stores position records. Only the goroutine of the pump uses a
// grouper.
type grouper struct {
	writer    sink.TransactionalWriter
	tracker   *checkpoint.Tracker
	positions *positionWriter

	maxRows int           // the constant groupRows; smaller in tests
	age     time.Duration // how old the current group may get, from groupAge to backlogAge

	rows  int // of the current group
	bytes int
	began time.Time // when the first row was sent; valid if rows > 0
	due   bool      // the position may be ahead of the record

	uncommitted atomic.Int32  // ended groups that are not committed
	freed       chan struct{} // cap 1; a group was committed
}

func newGrouper(w sink.TransactionalWriter, t *checkpoint.Tracker, p *positionWriter) *grouper {
	return &grouper{writer: w, tracker: t, positions: p, maxRows: groupRows, age: groupAge, freed: make(chan struct{}, 1)}
}

// addRow adds a row, which the writer has accepted, to the group, and ends the group if it is large.
func (g *grouper) addRow(bytes int) error {
	if g.rows == 0 {
		g.began = time.Now()
	}
	g.rows++
	g.bytes += bytes
	if g.rows < g.maxRows && g.bytes < groupBytes {
		return nil
	}
	return g.end()
}

// endIfOld ends the group after a source transaction if it is old.
func (g *grouper) endIfOld() error {
	if g.rows == 0 || g.uncommitted.Load() > 0 || time.Since(g.began) < g.age {
		return nil
	}
	g.age = min(2*g.age, backlogAge)
	return g.end()
}

// endIfIdle ends the group when no message of Postgres has waited for the time idle, and the group need not wait longer.
// It also has a position stored that no record follows.
func (g *grouper) endIfIdle(inTransaction bool, idle time.Duration) error {
	if g.uncommitted.Load() > 0 || g.rows == 0 && !g.due || g.patience(inTransaction, idle) > 0 {
		return nil
	}
	g.age = groupAge
	return g.end()
}

// expiry returns a channel on which a value arrives when endIfIdle may end the group: at once if that has become true
// since endIfIdle was called.
func (g *grouper) expiry(inTransaction bool, idle time.Duration) <-chan time.Time {
	if g.rows == 0 || g.uncommitted.Load() > 0 {
		return nil
	}
	return time.After(g.patience(inTransaction, idle))
}

// patience returns how much longer the group waits for rows, after no message has waited for the time idle: for the rest
// of a transaction of the source, and a moment if it works off a backlog, because Postgres pauses for a moment now and
// then while it sends one.
func (g *grouper) patience(inTransaction bool, idle time.Duration) time.Duration {
	switch age := time.Since(g.began); {
	case g.rows == 0:
		return 0
	case inTransaction:
		return maxGroupAge - age
	case age > 2*groupAge:
		return backlogPause - idle
	}
	return 0
}

// end ends the group. It does nothing if the group has no rows and the position is not ahead of the record.
func (g *grouper) end() error {
	g.due = false
	next := g.positions.nextRecord(g.tracker.Goal())
	if g.rows == 0 && !next.changed {
		return nil
	}
	value, err := json.Marshal(next.position)
	if err != nil {
		return err
	}
	g.rows, g.bytes = 0, 0
	g.uncommitted.Add(1)
	g.writer.Commit(value, func() {
		g.positions.keepRecord(next)
		g.uncommitted.Add(-1)
		signal(g.freed)
	})
	return nil
}
