package twin

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// firstLSN is the beginning of the WAL.
const firstLSN pglogrepl.LSN = 0x1000

const postgresAddr = "postgres:5432"

// A postgres simulates a server with one slot. Its methods lock mu for each step.
type postgres struct {
	net     *network
	history *history
	sends   func(*transaction) bool // false: the WAL sender omits the transaction; for mutations
	created func()                  // called when a relay has created the slot, before the relay knows; nil: nothing happens
	counted func()                  // called when a relay counts missing rows, before it gets the number; nil: nothing happens

	mu      sync.Mutex
	changed *sync.Cond
	rng     *rand.Rand
	state   serverState
	log     []*transaction
	walEnd  pglogrepl.LSN
	slot    slot

	timeline int32
	forks    []pglogrepl.LSN // end of each earlier timeline, oldest first
	clients  map[*client]struct{}
	refuse   *pgproto3.ErrorResponse // error for new connections; nil: the server accepts them
	timeout  time.Duration           // wal_sender_timeout
	ends     bool                    // the server ends each stream soon after its start
	empty    bool                    // WAL senders send transactions without rows, like Postgres before 15
	serial   int                     // number of the last row
	pids     uint32                  // PID of the last connection

	xids    xids
	locked  *client            // holds the advisory lock; nil: nobody
	exports map[string]*export // by name
}

type serverState int

const (
	running  serverState = iota
	stopping             // fast shutdown: WAL senders wait for their clients
	down
)

// A slot has a position in memory and a saved one, to which a crash resets it.
type slot struct {
	confirmed, saved pglogrepl.LSN
	owner            *client // nil: nobody streams
	dropped          bool
	creator          *client // creates it again; nil: nobody
}

// missing reports whether there is no slot, not even one that is being created.
func (s *slot) missing() bool { return s.dropped && s.creator == nil }

// user returns the session for which the slot is active, or nil.
func (s *slot) user() *client {
	if s.creator != nil {
		return s.creator
	}
	return s.owner
}

func newPostgres(n *network, h *history, rng *rand.Rand) *postgres {
	p := &postgres{
		net: n, history: h, rng: rng, walEnd: firstLSN, timeline: 1, state: down,
		clients: make(map[*client]struct{}), exports: make(map[string]*export), sends: func(*transaction) bool { return true },
		timeout: time.Duration(5+rng.IntN(55)) * time.Second, empty: rng.IntN(2) == 0,
	}
	h.lease = p.timeout + time.Second
	p.slot = slot{confirmed: p.walEnd, saved: p.walEnd}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// start makes the server accept connections.
func (p *postgres) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.refuse = running, nil
	p.net.listen(postgresAddr, p.serve)
	p.history.note("postgres: takes connections, slot at %s", p.slot.confirmed)
}

// own gives the slot to a client. If c is nil, it releases the slot. The caller must hold mu.
func (p *postgres) own(c *client) {
	run := 0
	if c != nil {
		run = c.conn.run
	}
	p.slot.owner = c
	p.history.held(run)
}

// disown releases the slot if c holds it. The caller must hold mu.
func (p *postgres) disown(c *client) {
	if p.slot.owner == c {
		p.own(nil)
	}
	p.changed.Broadcast()
}

// crash closes every connection and resets the slot to the saved position.
func (p *postgres) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history.note("postgres: crashes, slot goes back from %s to %s", p.slot.confirmed, p.slot.saved)
	p.state = down
	p.xids.open, p.slot.creator = nil, nil
	p.slot.confirmed = p.slot.saved
	p.own(nil)
	p.history.wentBack(p.slot.saved)
	for _, c := range p.sortedClients() {
		c.gone = true
		c.conn.cut(p.rng.IntN(2) == 0)
	}
	clear(p.clients)
	p.away()
	p.changed.Broadcast()
}

// promote replaces a crashed server with a promoted standby. The standby lacks the last lag transactions
// of the current timeline. It also lacks all transactions after the last remaining one with rows. The new
// timeline begins at the end of the last transaction that it has. The slot is at the saved position.
func (p *postgres) promote(lag int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.walEnd
	for ; lag > 0 && len(p.log) > 0 && p.log[len(p.log)-1].timeline == p.timeline; lag-- {
		p.log = p.log[:len(p.log)-1]
	}
	for len(p.log) > 0 && len(p.log[len(p.log)-1].rows) == 0 {
		p.log = p.log[:len(p.log)-1]
	}
	p.walEnd = firstLSN
	if n := len(p.log); n > 0 {
		p.walEnd = p.log[n-1].endLSN
	}
	p.xids = xidsAfter(p.log)
	p.timeline++
	p.forks = append(p.forks, p.walEnd)
	p.slot.saved = min(p.slot.saved, p.walEnd)
	p.slot.confirmed = p.slot.saved
	p.history.promoted(p.timeline, len(p.log), before, p.walEnd, p.slot.saved)
}

// makeSlot re-creates the slot at the end of the WAL.
func (p *postgres) makeSlot() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.walEnd += 100
	p.slot = slot{confirmed: p.walEnd, saved: p.walEnd}
	p.history.note("postgres: slot made at %s", p.walEnd)
}

// away makes the server refuse connections: with an error, or because it does not listen.
func (p *postgres) away() {
	if p.rng.IntN(2) == 0 {
		p.net.unlisten(postgresAddr)
	} else {
		p.refuse = fatal("57P03", "the database system is starting up")
	}
}

// stop is a fast shutdown. It returns when the WAL sender of the slot has exited.
func (p *postgres) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != running {
		return
	}
	p.history.note("postgres: stops")
	p.state, p.refuse = stopping, fatal("57P03", "the database system is shutting down")
	p.xids.open = nil
	for _, c := range p.sortedClients() {
		if !c.streaming {
			c.terminate()
		}
	}
	p.changed.Broadcast()
	for p.slot.owner != nil && p.state == stopping {
		p.changed.Wait()
	}
	if p.state != stopping {
		return // the server has crashed meanwhile
	}
	p.slot.saved = p.slot.confirmed
	p.history.note("postgres: has stopped, slot at %s", p.slot.confirmed)
	for _, c := range p.sortedClients() {
		c.gone = true
		c.conn.cut(false)
	}
	clear(p.clients)
	p.state = down
	p.away()
}

// checkpoint saves the slot.
func (p *postgres) checkpoint() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slot.saved = p.slot.confirmed
}

// endStreams turns on or off that the server ends every stream soon after its start.
func (p *postgres) endStreams(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = on
}

// advance simulates a person who terminates the relay's connections and then advances the slot with
// pg_replication_slot_advance, past a commit that the relay has not read.
func (p *postgres) advance(commit func()) {
	p.mu.Lock()
	p.refuse = fatal("57P03", "the database system is starting up")
	p.mu.Unlock()
	p.each((*client).terminate)
	time.Sleep(time.Second)
	commit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slot.confirmed, p.slot.saved, p.refuse = p.walEnd, p.walEnd, nil
	p.history.note("postgres: somebody advances the slot to %s", p.walEnd)
}

// each calls f for every connection.
func (p *postgres) each(f func(*client)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.sortedClients() {
		f(c)
	}
}

func (p *postgres) sortedClients() []*client {
	return slices.SortedFunc(maps.Keys(p.clients), func(a, b *client) int { return cmp.Compare(a.conn.name, b.conn.name) })
}

// newRow returns a row that is not in a transaction yet. The caller must hold mu.
func (p *postgres) newRow(topic, key string, size int, poison bool) *row {
	p.serial++
	r := &row{
		position: p.serial, id: fmt.Sprintf("id-%d", p.serial), topic: topic, key: key, poison: poison,
		value: fmt.Sprintf("%d of %s %s", p.serial, key, strings.Repeat("x", size)),
	}
	if poison {
		r.value = poisonous + r.value
	}
	return r
}

// commit writes a transaction to the WAL. It does nothing if the server does not run.
func (p *postgres) commit(fill func(tx *transaction)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != running {
		return
	}
	tx := new(transaction)
	fill(tx)
	p.write(tx)
}

// write writes a transaction to the WAL. The caller must hold mu.
func (p *postgres) write(tx *transaction) {
	if tx.xid == 0 {
		tx.xid = p.xids.assign()
	}
	for _, r := range tx.rows {
		r.tx = tx
		p.walEnd += pglogrepl.LSN(64 + len(r.value))
	}
	if len(tx.rows) == 0 && tx.message == "" {
		p.walEnd += pglogrepl.LSN(8 * p.rng.IntN(1000)) // a transaction that changes other tables
	}
	p.walEnd += 8
	tx.commitLSN, tx.at = p.walEnd, time.Now()
	p.walEnd += 48
	tx.endLSN = p.walEnd
	if p.rng.IntN(3) == 0 { // otherwise the next WAL record begins at the end of this one
		p.walEnd += pglogrepl.LSN(8 * (1 + p.rng.IntN(20)))
	}
	p.log = append(p.log, tx)
	p.history.committed(tx)
	p.changed.Broadcast()
}

// lose makes the server give up the connections of a run without informing the run.
func (p *postgres) lose(run int) {
	p.each(func(c *client) {
		if c.conn.run == run {
			c.lose()
		}
	})
}

// confirmedLSN returns the slot's confirmed position.
func (p *postgres) confirmedLSN() pglogrepl.LSN {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slot.confirmed
}

func fatal(code, text string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: text}
}
