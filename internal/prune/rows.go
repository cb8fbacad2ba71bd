package prune

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// roundTime is the maximum time that one snapshot is used. While it exists, VACUUM cannot remove rows that
	// were deleted since.
	roundTime = 20 * time.Second
	// mostPages is the maximum number of pages per transaction.
	mostPages = 8192
)

// A walk reads the pages of a table once. It needs no index, and each transaction reads only its own pages, so it does not
// read the dead rows of earlier ones.
type walk struct {
	r           *relation
	part        part
	next, pages int // the next page, and the number of pages of the next transaction
	end         int
}

// deleteRows deletes the rows of a table that are old and delivered.
func (p *pruner) deleteRows(ctx context.Context, r *relation, leaf part, t *Table) error {
	end, err := queryOne[int](ctx, p.work,
		`SELECT COALESCE(pg_catalog.pg_relation_size($1::oid::regclass) / pg_catalog.current_setting('block_size')::bigint, 0)::int`, leaf.OID)
	if err != nil {
		return fmt.Errorf("read the size of %s: %w", leaf.Name, err)
	}
	w := &walk{r: r, part: leaf, pages: 16, end: end}
	for w.next < w.end {
		done, err := p.round(ctx, w, t)
		if err != nil || done {
			return err
		}
	}
	return nil
}

// round deletes rows with one snapshot. done is true after a dry run, and if another session holds the lock.
func (p *pruner) round(ctx context.Context, w *walk, t *Table) (done bool, err error) {
	holder, err := p.lockConn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return false, err
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(ctx)) }()
	if ok, err := p.ours(ctx, holder, w.part); err != nil || !ok {
		return true, err
	}
	snapshot, err := queryOne[string](ctx, holder, `SELECT pg_catalog.pg_export_snapshot()`)
	if err != nil {
		return false, fmt.Errorf("export a snapshot: %w", err)
	}
	if err := p.confirm(ctx, w.r, t, p.cfg.Wait); err != nil {
		return false, err
	}
	if p.cfg.DryRun {
		n, err := p.count(ctx, w, snapshot)
		t.Deleted += n
		return true, err
	}
	for began := time.Now(); w.next < w.end && time.Since(began) < roundTime; {
		if err := p.step(ctx, w, snapshot, t); err != nil {
			return false, err
		}
		p.cfg.Progress(w.part.Name, w.next, w.end)
	}
	return false, nil
}

// count returns the number of rows that would be deleted.
func (p *pruner) count(ctx context.Context, w *walk, snapshot string) (n int64, err error) {
	err = p.under(ctx, snapshot, func(tx pgx.Tx) error {
		n, err = queryOne[int64](ctx, tx, `SELECT pg_catalog.count(*) FROM ONLY `+w.part.Name+` WHERE `+w.r.old, w.r.before)
		return err
	})
	return n, err
}

// step deletes rows in the next pages, and adapts the number of pages so that a transaction deletes about a batch of rows.
// It leaves pages with rows that another transaction uses to the next prune.
func (p *pruner) step(ctx context.Context, w *walk, snapshot string, t *Table) error {
	to := min(w.next+w.pages, w.end)
	var deleted int
	err := p.under(ctx, snapshot, func(tx pgx.Tx) error {
		if err := limitLockWait(ctx, tx, p.cfg.patience.row); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM ONLY %s WHERE ctid >= '(%d,0)'::tid AND ctid < '(%d,0)'::tid AND %s`,
			w.part.Name, w.next, to, w.r.old), w.r.before)
		deleted = int(tag.RowsAffected())
		return err
	})
	switch {
	case inTheWay(err):
		t.Busy++
	case err != nil:
		return fmt.Errorf("delete rows of %s: %w", w.part.Name, err)
	}
	t.Deleted += int64(deleted)
	w.next = to
	switch {
	case deleted > p.cfg.Batch:
		w.pages = max(1, w.pages/2)
	case deleted < p.cfg.Batch/2:
		w.pages = min(mostPages, w.pages*2)
	}
	return nil
}

// under runs f in a transaction with the snapshot.
func (p *pruner) under(ctx context.Context, snapshot string, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, p.work, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION SNAPSHOT '`+snapshot+`'`); err != nil {
			return err
		}
		return f(tx)
	})
}
