package prune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// While partitions are locked, whoever writes to these old days waits. So it is for as short as the
	// relay confirms at all, and never longer than this.
	lockedFor    = 10 * time.Second
	dropAttempts = 20
	// perDrop is how many partitions go in one transaction. Each takes a few locks.
	perDrop = 32
)

// createPartitions creates those of the coming days.
func (p *pruner) createPartitions(ctx context.Context, r *relation, t *Table) (err error) {
	if r.create == "" || p.cfg.DryRun {
		return nil
	}
	rows, _ := p.work.Query(ctx, `SELECT `+r.create+`($1)`, p.cfg.Days)
	if t.Created, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return fmt.Errorf("create partitions: %w", err)
	}
	t.Warnings, p.warnings = append(t.Warnings, p.warnings...), nil
	return nil
}

// dropPartitions drops those in which everything is old and delivered.
func (p *pruner) dropPartitions(ctx context.Context, r *relation, t *Table) error {
	if p.cfg.DryRun && len(r.partitions) > 0 {
		if err := p.confirm(ctx, r, t, p.cfg.Wait); err != nil {
			return err
		}
		for _, part := range r.partitions {
			t.Dropped = append(t.Dropped, part.Partition)
		}
		return nil
	}
	for some := range slices.Chunk(r.partitions, perDrop) {
		if err := p.dropSome(ctx, r, some, t); err != nil {
			return err
		}
	}
	return nil
}

// dropSome drops partitions in one transaction. They are locked against writers before what is in
// them is proven to be delivered, and until they are gone.
//
// DETACH ... CONCURRENTLY would not wait for the table, but a table with a default partition does
// not have it, and the partition would stay behind where the proof fails.
func (p *pruner) dropSome(ctx context.Context, r *relation, parts []part, t *Table) error {
	if err := p.confirm(ctx, r, t, p.cfg.Wait); err != nil { // waits for a lagging relay without a lock
		return err
	}
	tx, err := p.lockConn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if ok, err := p.ours(ctx, tx, part{r.oid, Partition{Name: r.name}}); err != nil || !ok {
		return err
	}
	locked, err := p.lock(ctx, tx, r, parts, t)
	if err != nil || len(locked) == 0 {
		return err
	}
	ok := false
	switch err := p.confirm(ctx, r, t, min(lockedFor, p.cfg.Wait)); {
	case inTheWay(err): // a transaction that waits for these partitions has locked the table
	case err != nil:
		return err
	default:
		ok, err = p.drop(ctx, tx, locked)
		if err == nil && ok {
			err = tx.Commit(ctx)
		}
		if err != nil {
			return fmt.Errorf("drop partitions: %w", err)
		}
	}
	for _, one := range locked {
		if ok {
			t.Dropped = append(t.Dropped, one.Partition)
		} else {
			t.Kept = append(t.Kept, one.Partition)
		}
	}
	return nil
}

// lock returns the partitions that nobody can write to until tx ends. Of what has gone or has
// another name since it was described there is nothing to say.
func (p *pruner) lock(ctx context.Context, tx pgx.Tx, r *relation, parts []part, t *Table) ([]part, error) {
	var locked []part
	for _, part := range parts {
		ok, err := try(ctx, tx, p.cfg.patience.partition, `LOCK TABLE `+part.Name+` IN SHARE MODE`)
		if refusal, is := errors.AsType[*pgconn.PgError](err); is && refusal.Code == undefinedTable {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", part.Name, err)
		}
		if !ok {
			t.Kept = append(t.Kept, part.Partition)
			continue
		}
		same, err := queryOne[bool](ctx, tx,
			`SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = $1 AND inhrelid = $2 AND inhrelid = to_regclass($3))`, r.oid, part.OID, part.Name)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", part.Name, err)
		}
		if same {
			locked = append(locked, part)
		}
	}
	return locked, nil
}

// drop reports whether it got the table for a moment. Who has come to write to one of the partitions
// goes first: it has the table already, and would be in a deadlock with the DROP.
func (p *pruner) drop(ctx context.Context, tx pgx.Tx, partitions []part) (bool, error) {
	names, oids := make([]string, len(partitions)), make([]uint32, len(partitions))
	for i, one := range partitions {
		names[i], oids[i] = one.Name, one.OID
	}
	for range dropAttempts {
		met, err := queryOne[bool](ctx, p.work, `
			SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE NOT granted AND locktype = 'relation' AND mode = 'RowExclusiveLock'
				AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
				AND relation IN (SELECT t.relid FROM unnest($1::oid[]) AS o, pg_partition_tree(o) AS t))`, oids)
		if met || err != nil {
			return false, err
		}
		ok, err := try(ctx, tx, p.cfg.patience.drop, `DROP TABLE `+strings.Join(names, ", "))
		if ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(p.cfg.patience.dropPause):
		}
	}
	return false, nil
}

// try runs a statement in tx, and reports false if it did not get a lock in time. tx goes on then.
func try(ctx context.Context, tx pgx.Tx, patience time.Duration, sql string) (bool, error) {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := limitLockWait(ctx, tx, patience); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql)
		return err
	})
	if inTheWay(err) {
		return false, nil
	}
	return err == nil, err
}

// limitLockWait limits how long each later statement of tx waits for a lock, to a millisecond at least.
func limitLockWait(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, max(1, limit.Milliseconds())))
	return err
}

// SQLSTATEs, as in https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	undefinedTable       = "42P01"
	lockNotAvailable     = "55P03"
	deadlockDetected     = "40P01"
	serializationFailure = "40001"
)

// inTheWay reports whether err is about somebody else who has locked or changed the same.
func inTheWay(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{lockNotAvailable, deadlockDetected, serializationFailure}, refusal.Code)
}
