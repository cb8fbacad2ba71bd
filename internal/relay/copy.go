package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
)

// The initial copy sends the rows that were in the tables when the slot was created, before the
// session handles anything of the stream. The position record says whether a copy is pending, from
// before the slot is created until all rows are acknowledged. If the process crashes in between, the
// next start finds the record and reads all rows again. The writer recognises those that are stored. Rows written
// since the slot was created are then duplicated.

// errCopyUnfinished: an earlier start has created the slot, but has not delivered the whole copy.
var errCopyUnfinished = errors.New("the initial copy of an earlier start is not finished")

// A tableCopy is what a tenure sends before the stream: an initial copy or a refill. The tenure then has
// only one session, because another session would not read the same rows.
type tableCopy struct {
	point    pglogrepl.LSN  // where the slot starts
	router   *encode.Router // of the rows of a refill; nil: it is an initial copy
	total    uint64         // rows of a refill; 0: not counted yet
	since    time.Time      // from when on its rows may have been stored; zero: unknown
	open     func(context.Context) (*catalog.Copy, error)
	markDone func() // called when every row is acknowledged
	log      *slog.Logger
}

// planCopy returns the copy that the session must send before the stream, or nil.
func (r *Relay) planCopy(ctx context.Context, s checkpoint.Server, slot *catalog.Slot) (*tableCopy, error) {
	if refill := r.positions.Next().Refill; refill != nil {
		return r.planRefill(refill, s)
	}
	if !r.positions.Next().Copying {
		if r.cfg.InitialCopy && r.positions.Stored().EndLSN == 0 && r.cfg.SkipTo == 0 { // with SkipTo, it takes over a slot whose rows were sent
			r.log.WarnContext(ctx, "no initial copy because the slot already existed, rows from before it are not sent")
		}
		return nil, nil
	}
	if !r.cfg.InitialCopy {
		return nil, errCopyUnfinished
	}
	all := func(ctx context.Context) (*catalog.Copy, error) { return r.openCopy(ctx, nil) }
	return &tableCopy{point: slot.ConfirmedFlushLSN, since: withMargin(r.positions.Next().CopyBegan), open: all, markDone: r.positions.MarkCopied, log: r.log}, nil
}

// withMargin returns a time from when on rows may have been stored that were committed or sent after t. Clocks of relays differ, and
// a transaction that waits for a synchronous standby is invisible after its commit time. A zero time stays zero.
func withMargin(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-time.Minute)
}

// openCopy returns, the first time, the copy from the snapshot of the slot that this start has created, unless its connection
// was lost before this session. After that, it returns a copy of the current rows, or of the missing ones.
func (r *Relay) openCopy(ctx context.Context, missing *catalog.Missing) (*catalog.Copy, error) {
	if made := r.copy; made != nil {
		r.copy = nil
		checking, cancel := context.WithTimeout(ctx, inspectTimeout)
		defer cancel()
		if made.Check(checking) == nil {
			return made, nil
		}
		made.Close(ctx)
	}
	creating, waiting, cancel := r.whileWaiting(ctx, r.waits.announce)
	defer cancel()
	return catalog.OpenCopy(creating, r.cfg.Source, r.cfg.Tables, r.copyFilter(), missing, waiting)
}

func (r *Relay) copyFilter() catalog.CopyFilter {
	return catalog.CopyFilter{Where: r.cfg.InitialCopyWhere, ID: r.cfg.Route.Columns.ID}
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
	opening, cancel := untilClosed(ctx, stop)
	defer cancel()
	c, err := p.copy.open(opening)
	if err != nil && isClosed(stop) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close(ctx)
	if p.copy.router != nil {
		defer func(router *encode.Router) { p.router = router }(p.router)
		p.router = p.copy.router
		p.router.SetDescribe(p.describe(ctx))
		stop, err := p.flow.startRefill(ctx, c, p.copy.total)
		if err != nil {
			return false, err
		}
		defer stop()
	}
	began := time.Now()
	p.copy.logBegin(ctx, c)
	p.open = openTx{Tx: encode.Tx{CommitLSN: p.copy.point - 1, CommitTime: began, Timestamp: began}, copied: true}
	p.tx = &p.open
	if confirmed := p.tracker.Confirmed(); p.tx.CommitLSN < confirmed {
		return false, fmt.Errorf("broken invariant: the copy, at %s, lies before the confirmed position %s", p.tx.CommitLSN, confirmed)
	}
	if err := p.tracker.Begin(p.tx.CommitLSN, time.Time{}); err != nil {
		return false, err
	}
	p.deadLetters.parked.StartCopy(p.tx.CommitLSN)
	for _, part := range c.Parts() {
		for i := range part.Tables {
			err := p.copyTable(ctx, stop, part, &part.Tables[i])
			if errors.Is(err, errCopyStopped) {
				return true, nil
			}
			if err != nil {
				return false, err
			}
		}
	}
	if err := p.tracker.Commit(0); err != nil { // confirms nothing: the slot exists already
		return false, err
	}
	p.tx = nil
	if _, err := p.waitForAcks(ctx, nil, 0); err != nil {
		return false, err
	}
	p.copy.markDone()
	p.copy.logEnd(ctx, p.open.rows, time.Since(began))
	p.copy = nil
	p.copying.Store(false)
	return false, nil
}

// untilClosed returns a context that also ends when stop is closed.
func untilClosed(ctx context.Context, stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (t *tableCopy) logBegin(ctx context.Context, c *catalog.Copy) {
	attrs := []slog.Attr{slog.String("as_of", c.Point.String()), slog.Int("tables", len(c.Tables))}
	if t.router == nil {
		t.log.LogAttrs(ctx, slog.LevelInfo, "initial copy started", attrs...)
	} else {
		t.log.LogAttrs(ctx, slog.LevelInfo, "refill started", attrs...)
	}
}

func (t *tableCopy) logEnd(ctx context.Context, rows int, took time.Duration) {
	attrs := []slog.Attr{slog.Int("rows", rows), slog.String("took", took.Round(time.Millisecond).String())}
	if t.router == nil {
		t.log.LogAttrs(ctx, slog.LevelInfo, "initial copy finished", attrs...)
	} else {
		t.log.LogAttrs(ctx, slog.LevelInfo, "refill finished", attrs...)
	}
}

// copyTable sends the rows of a table as if they were just inserted.
func (p *pump) copyTable(ctx context.Context, stop <-chan struct{}, c *catalog.Copy, t *catalog.Table) error {
	row := decoder.Insert{Relation: rows.Relation(*t)}
	var raw []byte
	return c.Rows(ctx, t, func(values [][]byte) error {
		if stopped, err := p.waitForAcks(ctx, stop, p.maxSpan-1); err != nil {
			return err
		} else if stopped || isClosed(stop) || ctx.Err() != nil {
			return errCopyStopped
		}
		rows.SetRow(&row, values)
		raw = raw[:0]
		for _, v := range values {
			raw = append(append(raw, v...), 0)
		}
		p.raw = raw
		if err := p.sendInsert(ctx, &row); err != nil {
			return fmt.Errorf("copy of the table: %w", err)
		}
		p.flow.refill.Load().addRow()
		p.flow.addCounts(&p.counts)
		return nil
	})
}
