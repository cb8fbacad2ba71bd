package measure

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Backlog is a number of rows in the WAL and a slot before them. The slot is temporary, so that it
// does not retain WAL after the end of this process.
type Backlog struct {
	Load     Load
	WALBytes int64         // WAL from the slot to the end of the rows
	Took     time.Duration // to write it

	bench *Workbench
	slot  string
	owner *pgx.Conn // its session owns the slot; nil after Close
	end   string    // position after the rows
}

// Write creates a slot and then writes the rows of l. There may be only one Backlog at a time: close it
// before you write the next one.
func (w *Workbench) Write(ctx context.Context, l Load) (*Backlog, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	owner, err := w.pool.Acquire(ctx)
	if err != nil {
		return nil, postgresError("connect", err)
	}
	b := &Backlog{Load: l, bench: w, owner: owner.Hijack(), slot: w.newSlotName()}
	w.backlog = b
	if err := b.write(ctx); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return b, nil
}

func (b *Backlog) write(ctx context.Context) error {
	before, err := createSlot(ctx, b.owner, b.slot, true)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := b.bench.load(ctx, b.Load); err != nil {
		return postgresError("write the rows", err)
	}
	b.Took = time.Since(begun)
	if b.end, err = b.bench.mark(ctx); err != nil {
		return err
	}
	return b.owner.QueryRow(ctx, `SELECT ($1::pg_lsn - $2::pg_lsn)::bigint`, b.end, before).Scan(&b.WALBytes)
}

// mark flushes the WAL, because a WAL sender sends only flushed WAL, and returns its end. It also runs a
// checkpoint, so that none runs during the next measurement.
func (w *Workbench) mark(ctx context.Context) (end string, err error) {
	_, err = w.pool.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, '')`, ClientID)
	if err == nil {
		err = w.pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end)
	}
	if err == nil { // otherwise pg_recvlogical would not reach the end position
		_, err = w.pool.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, '')`, ClientID)
	}
	if err == nil {
		err = w.checkpoint(ctx)
	}
	if err != nil {
		return "", postgresError("mark the end of the rows", err)
	}
	return end, nil
}

// Close deletes the rows and drops the slot, even if ctx is done. A second Close does nothing.
func (b *Backlog) Close(ctx context.Context) error {
	if b.owner == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := b.owner.Close(ctx) // drops the temporary slot
	b.owner, b.bench.backlog = nil, nil
	return errors.Join(err, b.bench.removeRows(ctx))
}

// removeRows empties the outbox, even if ctx is done.
func (w *Workbench) removeRows(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if _, err := w.pool.Exec(ctx, `TRUNCATE `+w.table()); err != nil {
		return postgresError("remove the rows", err)
	}
	return nil
}

// plan returns the plan for the rows of l.
func (w *Workbench) plan(l Load) plan {
	return plan{rows: l.Rows, keys: l.Keys, topics: w.cfg.Topics, payload: l.PayloadBytes, dust: w.dust}
}
