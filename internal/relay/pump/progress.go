package pump

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// Counts are what was read and sent. A pump counts for itself and adds its Counts to the Progress once per batch, so that it
// needs no lock and no shared cache line per row.
type Counts struct {
	Transactions uint64        // commits read
	Rows         uint64        // outbox rows sent to the sink
	Received     pglogrepl.LSN // highest position read: end LSNs and keepalives
	WALBytes     uint64        // bytes of WAL read, counted from the first position of each ownership; Progress counts them
}

// Progress is what the pumps of a process, one for each ownership, have done. Its methods may be called from any goroutine.
type Progress struct {
	refill atomic.Pointer[refillProgress] // nil: no refill is running

	mu     sync.Mutex
	counts Counts
}

// StartOwnership resets the received position to start, because the new ownership may be on another timeline.
func (p *Progress) StartOwnership(start pglogrepl.LSN) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Received = start
}

// Add moves counts to p and clears them.
func (p *Progress) Add(counts *Counts) {
	if *counts == (Counts{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Transactions += counts.Transactions
	p.counts.Rows += counts.Rows
	if from := p.counts.Received; counts.Received > from {
		p.counts.Received = counts.Received
		if from != 0 { // otherwise the relay has not read up to this position: the ownership starts there
			p.counts.WALBytes += uint64(counts.Received - from)
		}
	}
	*counts = Counts{}
}

// Counts returns the counts so far.
func (p *Progress) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Refill returns the progress of the running refill, or nil if none is running.
func (p *Progress) Refill() *RefillStat { return p.refill.Load().stat() }

// RefillStat is the progress of a running refill of a lost slot.
type RefillStat struct {
	Since time.Time // when the relay began to send the rows, or continued after an interruption
	Rows  uint64    // rows sent, including those before an interruption
	Total uint64    // rows to be sent
}

// A refillProgress counts the rows of a running refill.
type refillProgress struct {
	since time.Time
	total uint64
	rows  atomic.Uint64
}

// stat returns the progress, or nil if p is nil.
func (p *refillProgress) stat() *RefillStat {
	if p == nil {
		return nil
	}
	return &RefillStat{Since: p.since, Rows: p.rows.Load(), Total: p.total}
}

// addRow counts a row, if a refill is running.
func (p *refillProgress) addRow() {
	if p != nil {
		p.rows.Add(1)
	}
}

// startRefill makes p show the progress of the refill to which c has the rows, until stop is called. It
// counts the rows if total is 0.
func (p *Progress) startRefill(ctx context.Context, c *catalog.Copy, total uint64) (stop func(), err error) {
	if total == 0 {
		for _, t := range c.Tables {
			n, err := c.Count(ctx, t)
			if err != nil {
				return nil, err
			}
			total += uint64(n)
		}
	}
	p.refill.Store(&refillProgress{since: time.Now(), total: total})
	return func() { p.refill.Store(nil) }, nil
}
