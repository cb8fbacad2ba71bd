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

// The initial copy sends the rows that were in the tables when the slot was made, while the
// slot is held and nothing is read from it. What decides whether there is one is the position
// record: it says so before the slot is made, and until all rows are acknowledged. So whoever
// finds the slot later, after whatever end of this process, knows that rows are missing, and
// copies all of them anew. Rows written since the slot was made come in both then.

// errCopyLeft: an earlier start has made the slot and not finished what comes before it.
var errCopyLeft = errors.New("the initial copy that an earlier start began is not finished")

// An initialCopy is what a session has to send before the stream.
type initialCopy struct {
	point pglogrepl.LSN // from which the slot delivers
	open  func(context.Context) (*catalog.Copy, error)
	done  func()          // every row is acknowledged
	lost  <-chan struct{} // closed when the stream has ended, and with it our hold on the slot
	log   *slog.Logger
}

// copying returns the copy that a session has to begin with, nil if there is none.
func (c *Relay) copying(ctx context.Context, slot *catalog.Slot) (*initialCopy, error) {
	if !c.recorder.copying() {
		if c.cfg.InitialCopy && c.recorder.last.EndLSN == 0 {
			c.log.WarnContext(ctx, "no initial copy: the slot was there already; rows from before it are not sent")
		}
		return nil, nil
	}
	if !c.cfg.InitialCopy {
		return nil, errCopyLeft
	}
	return &initialCopy{point: slot.ConfirmedFlushLSN, open: c.openCopy, done: c.recorder.copied, log: c.log}, nil
}

// openCopy returns the copy of the slot that this start has made, the first time, and after
// that one of what is in the tables now.
func (c *Relay) openCopy(ctx context.Context) (*catalog.Copy, error) {
	if made := c.copy; made != nil {
		c.copy = nil
		return made, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StartupTimeout)
	defer cancel()
	return catalog.OpenCopy(ctx, c.cfg.Source)
}

// closeCopy closes a copy that no session has begun with.
func (c *Relay) closeCopy(ctx context.Context) {
	if c.copy != nil {
		c.copy.Close(ctx)
		c.copy = nil
	}
}

// errCopyStopped ends the reading of a table.
var errCopyStopped = errors.New("stopped")

// sendCopy sends the rows of the copy as one transaction, and returns when all of them are
// acknowledged. That transaction lies just before the point from which the slot delivers, at a
// position where no other can begin. It reports true when it was stopped, or the stream has
// ended: another instance may have the slot then.
func (p *publication) sendCopy(ctx context.Context, stop <-chan struct{}) (stopped bool, err error) {
	c, err := p.copy.open(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close(ctx)
	began := time.Now()
	p.copy.log.InfoContext(ctx, "initial copy begins", slog.String("as_of", c.Point.String()), slog.Int("tables", len(c.Tables)))
	p.open = openTx{Tx: encode.Tx{CommitLSN: p.copy.point - 1, CommitTime: began, Timestamp: began}}
	p.tx = &p.open
	p.tracker.Begin(p.tx.CommitLSN, time.Time{})
	for i := range c.Tables {
		err := p.copyTable(ctx, stop, c, &c.Tables[i])
		if errors.Is(err, errCopyStopped) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	p.tracker.Commit(0) // which confirms nothing: the slot is there
	p.tx = nil
	if _, err := p.settle(ctx, nil, 0); err != nil {
		return false, err
	}
	p.copy.done()
	p.copy.log.InfoContext(ctx, "initial copy sent", slog.Int("rows", p.open.rows),
		slog.String("took", time.Since(began).Round(time.Millisecond).String()))
	return false, nil
}

// copyTable sends the rows of a table as if they were inserted now.
func (p *publication) copyTable(ctx context.Context, stop <-chan struct{}, c *catalog.Copy, t *catalog.Table) error {
	row := decoder.Insert{Relation: Relation(*t)}
	return c.Rows(ctx, t, func(values [][]byte) error {
		if stopped, err := p.settle(ctx, stop, p.maxSpan-1); err != nil {
			return err
		} else if stopped || isClosed(stop) || isClosed(p.copy.lost) {
			return errCopyStopped
		}
		SetRow(&row, values)
		if err := p.insert(ctx, &row); err != nil {
			return fmt.Errorf("initial copy: %w", err)
		}
		p.flow.add(&p.stats)
		return nil
	})
}
