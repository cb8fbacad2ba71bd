package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

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

// startRefill makes the flow show the progress of the refill to which c has the rows, until stop is called. It
// counts the rows if total is 0.
func (f *flow) startRefill(ctx context.Context, c *catalog.Copy, total uint64) (stop func(), err error) {
	if total == 0 {
		for _, t := range c.Tables {
			n, err := c.Count(ctx, t)
			if err != nil {
				return nil, err
			}
			total += uint64(n)
		}
	}
	f.refill.Store(&refillProgress{since: time.Now(), total: total})
	return func() { f.refill.Store(nil) }, nil
}
