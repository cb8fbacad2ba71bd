package measure

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A Load is the rows of a Backlog. Row i, from 0, is event i / Keys of key i % Keys, so the events of each
// key are in order and consecutive rows have different keys.
type Load struct {
	Rows         int
	PayloadBytes int // of the payload's text, at least [MinPayloadBytes]; a payload may be one byte shorter
	// PerTransaction is the number of rows in a transaction; Rows makes it one.
	PerTransaction int
	Keys           int // distinct aggregates; each belongs to one topic
}

// Validate returns an error if l is invalid.
func (l Load) Validate() error {
	switch {
	case l.Rows < 1 || l.PerTransaction < 1 || l.Keys < 1:
		return errors.New("a load needs rows, rows per transaction and keys")
	case l.Rows > maxRows:
		return fmt.Errorf("a load has at most %d rows, not %d", maxRows, l.Rows)
	case l.PayloadBytes < MinPayloadBytes || l.PayloadBytes > maxPayloadBytes:
		return fmt.Errorf("a payload has %d to %d bytes, not %d", MinPayloadBytes, maxPayloadBytes, l.PayloadBytes)
	}
	return nil
}

// maxRows limits the length of the numbers in a payload.
const maxRows = 1_000_000_000

// rowsPerCall is about how many rows are written between two reports of progress.
const rowsPerCall = 10_000

// load writes the rows as fast as the server can. It waits for the disk only at the end.
func (w *Workbench) load(ctx context.Context, l Load) error {
	conn, err := w.loader(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	step := max(1, rowsPerCall/l.PerTransaction) * l.PerTransaction
	for first := 0; first < l.Rows; first += step {
		if err := w.loadStep(ctx, conn, l, first, min(first+step, l.Rows)); err != nil {
			return err
		}
	}
	return nil
}

// loader returns a connection for loadStep.
func (w *Workbench) loader(ctx context.Context) (*pgx.Conn, error) {
	acquired, err := w.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := acquired.Hijack() // its settings must not return to the pool
	// A plan made for its parameters would contain all of dust, copied for each transaction.
	if _, err := conn.Exec(ctx, `SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan`); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// loadStep writes the rows from first to last-1: complete transactions, or a part of a transaction that is
// larger than a step.
func (w *Workbench) loadStep(ctx context.Context, conn *pgx.Conn, l Load, first, last int) error {
	call := func(q querier, first, last, perTransaction int) error {
		_, err := q.Exec(ctx, `CALL `+w.name+`.load($1, $2, $3, $4, $5, $6, $7, $8)`,
			first, last, perTransaction, l.Keys, w.cfg.Topics, l.PayloadBytes, payloadFixed, offsets)
		w.cfg.Progress(Progress{Doing: "write", Done: last, Total: l.Rows})
		return err
	}
	if l.PerTransaction <= rowsPerCall {
		return call(conn, first, last, l.PerTransaction)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after Commit
	for ; first < last; first += rowsPerCall {
		if err := call(tx, first, min(first+rowsPerCall, last), 0); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
