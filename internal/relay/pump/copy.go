package pump

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

// A Copy is what an ownership sends before the stream: an initial copy or a refill. The ownership then has
// only one session, because another session would not read the same rows.
type Copy struct {
	Point    pglogrepl.LSN  // where the slot starts
	Router   *encode.Router // of the rows of a refill; nil: it is an initial copy
	Total    uint64         // rows of a refill; 0: not counted yet
	Since    time.Time      // from when on its rows may have been stored; zero: unknown
	Open     func(context.Context) (*catalog.Copy, error)
	MarkDone func(checkpoint.Witness) // called when every row is acknowledged
}

// transaction returns the LSN of the transaction as which the rows are sent: one byte before the start of the slot, where no
// commit record can be.
func (c *Copy) transaction() pglogrepl.LSN { return c.Point - 1 }

// errCopyStopped ends the reading of a table.
var errCopyStopped = errors.New("stopped")

// sendCopy sends the rows of the copy as one transaction, and returns when all of them are
// acknowledged. stopped is true if stop was closed or ctx has ended.
func (p *Pump) sendCopy(ctx context.Context, stop <-chan struct{}) (stopped bool, err error) {
	opening, cancel := untilClosed(ctx, stop)
	defer cancel()
	c, err := p.copy.Open(opening)
	if err != nil && isClosed(stop) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close(ctx)
	if p.copy.Router != nil {
		defer func(router *encode.Router) { p.router = router }(p.router)
		p.router = p.copy.Router
		p.router.SetDescribe(p.catalog.Describe(ctx))
		stop, err := p.progress.startRefill(ctx, c, p.copy.Total)
		if err != nil {
			return false, err
		}
		defer stop()
	}
	began := time.Now()
	p.copy.logBegin(ctx, p.log, c)
	newest, err := p.findNewest(opening, c)
	if err != nil && isClosed(stop) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	p.open = openTx{Tx: encode.Tx{CommitLSN: p.copy.transaction(), CommitTime: began, Timestamp: began}, copied: true}
	p.tx = &p.open
	if confirmed := p.tracker.Confirmed(); p.tx.CommitLSN < confirmed {
		return false, fmt.Errorf("broken invariant: the copy, at %s, lies before the confirmed position %s", p.tx.CommitLSN, confirmed)
	}
	if err := p.tracker.Begin(p.tx.CommitLSN, time.Time{}); err != nil {
		return false, err
	}
	p.deadLetters.parked.StartCopy(p.tx.CommitLSN)
	sent := make([]bool, len(c.Tables))
	for _, part := range c.Parts() {
		for i := range part.Tables {
			before := p.tx.rows
			err := p.copyTable(ctx, stop, part, &part.Tables[i])
			sent[i] = sent[i] || p.tx.rows > before
			if errors.Is(err, errCopyStopped) {
				return true, nil
			}
			if err != nil {
				return false, err
			}
		}
	}
	p.keepNewest(newest, sent)
	if err := p.tracker.Commit(0); err != nil { // confirms nothing: the slot exists already
		return false, err
	}
	p.tx = nil
	if _, err := p.waitForAcks(ctx, nil, 0); err != nil {
		return false, err
	}
	p.copy.MarkDone(p.witnesses.Newest())
	p.copy.logEnd(ctx, p.log, p.open.rows, time.Since(began))
	p.copy = nil
	p.copying.Store(false)
	return false, nil
}

// findNewest returns the newest row that the copy has of each table; zero: there is none.
func (p *Pump) findNewest(ctx context.Context, c *catalog.Copy) ([]checkpoint.Witness, error) {
	newest := make([]checkpoint.Witness, len(c.Tables))
	for i := range c.Tables {
		ofTable, err := rows.NewTableRouter(p.router, c.Tables[i])
		if err != nil {
			continue // the first row says why it cannot become a record
		}
		err = c.Newest(ctx, &c.Tables[i], func(xid uint64, values [][]byte) {
			if hash, err := ofTable.Hash(values); err == nil {
				newest[i] = checkpoint.Witness{XID: xid, Hash: hash}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return newest, nil
}

// keepNewest makes the newest row of the copy the Witness of later snapshots. If a table has none of which rows were sent, there is no
// Witness: an earlier one would count the rows of the copy as not delivered.
func (p *Pump) keepNewest(newest []checkpoint.Witness, sent []bool) {
	for i, w := range newest {
		switch {
		case w != checkpoint.Witness{}:
			p.witnesses.Keep(w)
		case sent[i]:
			p.witnesses = checkpoint.NewWitnesses(checkpoint.Witness{})
			return
		}
	}
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

func (c *Copy) logBegin(ctx context.Context, log *slog.Logger, rows *catalog.Copy) {
	attrs := []slog.Attr{slog.String("as_of", rows.Point.String()), slog.Int("tables", len(rows.Tables))}
	if c.Router == nil {
		log.LogAttrs(ctx, slog.LevelInfo, "initial copy started", attrs...)
	} else {
		log.LogAttrs(ctx, slog.LevelInfo, "refill started", attrs...)
	}
}

func (c *Copy) logEnd(ctx context.Context, log *slog.Logger, rows int, took time.Duration) {
	attrs := []slog.Attr{slog.Int("rows", rows), slog.String("took", took.Round(time.Millisecond).String())}
	if c.Router == nil {
		log.LogAttrs(ctx, slog.LevelInfo, "initial copy finished", attrs...)
	} else {
		log.LogAttrs(ctx, slog.LevelInfo, "refill finished", attrs...)
	}
}

// copyTable sends the rows of a table as if they were just inserted.
func (p *Pump) copyTable(ctx context.Context, stop <-chan struct{}, c *catalog.Copy, t *catalog.Table) error {
	row := decoder.Insert{Relation: rows.Relation(*t)}
	var raw []byte
	return c.Rows(ctx, t, func(values [][]byte) error {
		if stopped, err := p.waitForAcks(ctx, stop, MaxWindow-1); err != nil {
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
		p.progress.refill.Load().addRow()
		p.progress.Add(&p.counts)
		return nil
	})
}
