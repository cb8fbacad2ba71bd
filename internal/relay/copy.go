package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// The initial copy sends the rows that were in the tables when the slot was created, before the
// session handles anything of the stream. The position record says whether a copy is pending, from
// before the slot is created until all rows are acknowledged. If the process crashes in between, the
// next start finds the record and copies all rows again. Rows written since the slot was created are
// then duplicated.

// errCopyUnfinished: an earlier start has created the slot, but has not delivered the whole copy.
var errCopyUnfinished = errors.New("the initial copy of an earlier start is not finished")

// An initialCopy is the copy that a tenure sends before the stream. The tenure then has only one
// session, because another session would not read the same rows.
type initialCopy struct {
	point    pglogrepl.LSN // start of the slot
	open     func(context.Context) (*catalog.Copy, error)
	markDone func() // called when every row is acknowledged
	log      *slog.Logger
}

// planCopy returns the copy that the session must send first, or nil if none is pending.
func (r *Relay) planCopy(ctx context.Context, slot *catalog.Slot) (*initialCopy, error) {
	if !r.positions.copyPending() {
		if r.cfg.InitialCopy && r.positions.stored.EndLSN == 0 {
			r.log.WarnContext(ctx, "no initial copy because the slot already existed, rows from before it are not sent")
		}
		return nil, nil
	}
	if !r.cfg.InitialCopy {
		return nil, errCopyUnfinished
	}
	return &initialCopy{point: slot.ConfirmedFlushLSN, open: r.openCopy, markDone: r.positions.markCopied, log: r.log}, nil
}

// openCopy returns, the first time, the copy from the snapshot of the slot that this start has created.
// After that, it returns a copy of the current rows.
func (r *Relay) openCopy(ctx context.Context) (*catalog.Copy, error) {
	if made := r.copy; made != nil {
		r.copy = nil
		return made, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartupTimeout)
	defer cancel()
	return catalog.OpenCopy(ctx, r.cfg.Source)
}

// closeCopy closes a copy that no session has used.
func (r *Relay) closeCopy(ctx context.Context) {
	if r.copy != nil {
		r.copy.Close(ctx)
		r.copy = nil
	}
}

// errCopyStopped ends the reading of a table.
var errCopyStopped = errors.New("stopped")

// sendCopy sends the rows of the copy as one transaction, and returns when all of them are
// acknowledged. The transaction is one byte before the start of the slot, where no commit record can
// be. stopped is true if stop was closed or ctx has ended.
func (p *pump) sendCopy(ctx context.Context, stop <-chan struct{}) (stopped bool, err error) {
	c, err := p.initialCopy.open(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close(ctx)
	began := time.Now()
	p.initialCopy.log.InfoContext(ctx, "initial copy started", slog.String("as_of", c.Point.String()), slog.Int("tables", len(c.Tables)))
	p.open = openTx{Tx: encode.Tx{CommitLSN: p.initialCopy.point - 1, CommitTime: began, Timestamp: began}}
	p.tx = &p.open
	if confirmed := p.tracker.Confirmed(); p.tx.CommitLSN < confirmed {
		return false, fmt.Errorf("broken invariant: the initial copy, at %s, is before the confirmed position %s", p.tx.CommitLSN, confirmed)
	}
	if err := p.tracker.Begin(p.tx.CommitLSN, time.Time{}); err != nil {
		return false, err
	}
	for i := range c.Tables {
		err := p.copyTable(ctx, stop, c, &c.Tables[i])
		if errors.Is(err, errCopyStopped) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	if err := p.tracker.Commit(0); err != nil { // confirms nothing: the slot exists already
		return false, err
	}
	p.tx = nil
	if _, err := p.waitForAcks(ctx, nil, 0); err != nil {
		return false, err
	}
	p.initialCopy.markDone()
	p.initialCopy.log.InfoContext(ctx, "initial copy finished", slog.Int("rows", p.open.rows),
		slog.String("took", time.Since(began).Round(time.Millisecond).String()))
	p.initialCopy = nil
	return false, nil
}

// copyTable sends the rows of a table as if they were just inserted.
func (p *pump) copyTable(ctx context.Context, stop <-chan struct{}, c *catalog.Copy, t *catalog.Table) error {
	row := decoder.Insert{Relation: Relation(*t)}
	return c.Rows(ctx, t, func(values [][]byte) error {
		if stopped, err := p.waitForAcks(ctx, stop, p.maxSpan-1); err != nil {
			return err
		} else if stopped || isClosed(stop) || ctx.Err() != nil {
			return errCopyStopped
		}
		SetRow(&row, values)
		if err := p.sendInsert(ctx, &row); err != nil {
			return fmt.Errorf("initial copy: %w", err)
		}
		p.flow.addCounts(&p.counts)
		return nil
	})
}
