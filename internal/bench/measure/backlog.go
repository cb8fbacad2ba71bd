package measure

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Backlog is rows in the log and a slot before them. The slot is temporary: it goes with this
// process, however that ends, and no log is held back for nobody.
type Backlog struct {
	Load     Load
	WALBytes int64         // of the log from the slot to the end of the rows
	Took     time.Duration // to write it

	bench *Workbench
	slot  string
	owner *pgx.Conn // has the slot; nil once closed
	end   string    // position behind the rows
}

// Write makes a slot and writes l behind it. There is one Backlog at a time: it must be closed before
// the next one is written.
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

// mark makes everything written so far durable, which is when a walsender sends it, and returns the
// position behind it. A checkpoint follows, so that none comes during what is measured next.
func (w *Workbench) mark(ctx context.Context) (end string, err error) {
	_, err = w.pool.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, '')`, clientID)
	if err == nil {
		err = w.pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end)
	}
	if err == nil { // or pg_recvlogical would not hear that the log goes on
		_, err = w.pool.Exec(ctx, `SELECT pg_logical_emit_message(true, $1, '')`, clientID)
	}
	if err == nil {
		err = w.checkpoint(ctx)
	}
	if err != nil {
		return "", postgresError("mark the end of the rows", err)
	}
	return end, nil
}

// Close drops the rows and the slot, also when ctx is done. A second Close does nothing.
func (b *Backlog) Close(ctx context.Context) error {
	if b.owner == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := b.owner.Close(ctx) // and the slot goes with it, whatever state it is in
	b.owner, b.bench.backlog = nil, nil
	return errors.Join(err, b.bench.removeRows(ctx))
}

// removeRows empties the outbox, also when ctx is done.
func (w *Workbench) removeRows(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if _, err := w.pool.Exec(ctx, `TRUNCATE `+w.table()); err != nil {
		return postgresError("remove the rows", err)
	}
	return nil
}

// plan says which rows l has.
func (w *Workbench) plan(l Load) plan {
	return plan{rows: l.Rows, keys: l.Keys, topics: w.cfg.Topics, payload: l.PayloadBytes, dust: w.dust}
}
