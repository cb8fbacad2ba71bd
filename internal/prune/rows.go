package prune

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// roundTime is how long one snapshot is used. As long as it lives, VACUUM frees nothing that was
	// deleted since.
	roundTime = 20 * time.Second
	// mostPages is how many pages a transaction looks at where it finds little.
	mostPages = 8192
)

// A walk goes through the pages of a table once. It needs no index, and each transaction reads only
// its own pages: dead rows of the ones before are not met again.
type walk struct {
	r           *relation
	part        part
	next, pages int // the next page, and how many of them the next transaction takes
	end         int
}

// deleteRows deletes those rows of a table that are old and delivered.
func (p *pruner) deleteRows(ctx context.Context, r *relation, leaf part, t *Table) error {
	end, err := queryOne[int](ctx, p.work,
		`SELECT COALESCE(pg_relation_size($1::oid::regclass) / current_setting('block_size')::bigint, 0)::int`, leaf.OID)
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

// round works under one snapshot. It reports true if another session holds the lock.
func (p *pruner) round(ctx context.Context, w *walk, t *Table) (done bool, err error) {
	holder, err := p.lockConn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return false, err
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := holder.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		return false, err
	}
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

// count counts what would be deleted.
func (p *pruner) count(ctx context.Context, w *walk, snapshot string) (n int64, err error) {
	err = p.under(ctx, snapshot, func(tx pgx.Tx) error {
		n, err = queryOne[int64](ctx, tx, `SELECT count(*) FROM ONLY `+w.part.Name+` WHERE `+w.r.old, w.r.before)
		return err
	})
	return n, err
}

// step deletes from the next pages, more or fewer of them than the last time so that about a batch
// of rows goes. Pages with rows that somebody else is at are left for the next prune.
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

// under runs f in a transaction that sees what the snapshot sees.
func (p *pruner) under(ctx context.Context, snapshot string, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, p.work, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION SNAPSHOT '`+snapshot+`'`); err != nil {
			return err
		}
		return f(tx)
	})
}
