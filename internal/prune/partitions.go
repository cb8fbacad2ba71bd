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
	// lockedFor is the maximum time that partitions are locked: writers to these days wait meanwhile.
	lockedFor    = 10 * time.Second
	dropAttempts = 20
	// perDrop is the maximum number of partitions to drop in one transaction. Each needs a few locks.
	perDrop = 32
)

// createPartitions creates the partitions of the next days. Of a table that has no function for it, it warns if they are missing.
func (p *pruner) createPartitions(ctx context.Context, r *relation, t *Table) (err error) {
	switch {
	case r.create == "" && r.ends != "":
		return p.warnMissing(ctx, r, t)
	case r.create == "" || p.cfg.DryRun:
		return nil
	}
	rows, _ := p.work.Query(ctx, `SELECT `+r.create+`($1)`, p.cfg.Days)
	if t.Created, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return p.explainDenied(ctx, r, fmt.Errorf("create partitions: %w", err))
	}
	t.Warnings, p.warnings = append(t.Warnings, p.warnings...), nil
	return nil
}

// warnDays is the number of days for which a table that prune makes no partitions for must have some. Other tools make them as few days
// ahead as four.
const warnDays = 3

// warnMissing warns of the first time in the next days for which there is no partition. It does not look into partitions of partitions.
func (p *pruner) warnMissing(ctx context.Context, r *relation, t *Table) error {
	gap, err := queryOne[string](ctx, p.work, partsByAge+`,
			days AS (SELECT now, now + pg_catalog.make_interval(days => $2) AS until FROM (SELECT `+r.clock+` AS now) AS clock),
			taken AS (SELECT COALESCE(pg_catalog.range_agg(('[' || COALESCE(begins, '') || ',' || COALESCE(ends, '') || ')')::`+r.span+`), '{}') AS by FROM parts)
		SELECT COALESCE((SELECT CASE pg_catalog.lower(gap) WHEN now THEN 'now' ELSE pg_catalog.lower(gap)::text END || COALESCE(' to ' ||
				(SELECT pg_catalog.min(pg_catalog.lower(later)) FROM pg_catalog.unnest(taken.by) AS later WHERE pg_catalog.lower(later) >= pg_catalog.upper(gap)), ' on')
			FROM days, taken, LATERAL pg_catalog.unnest(pg_catalog.multirange(`+r.span+`(now, until)) - taken.by) AS gap
			ORDER BY gap LIMIT 1), '')`, r.oid, warnDays)
	if err != nil {
		return fmt.Errorf("read the bounds of its partitions: %w", err)
	}
	if gap != "" {
		t.warn(fmt.Sprintf("no partition takes rows from %s: writers fail then, unless you create one", gap))
	}
	return nil
}

// dropPartitions drops the partitions in which every row is old and delivered.
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

// dropSome drops partitions in one transaction. It locks them against writers before it verifies that their rows are
// delivered, until they are dropped.
//
// DETACH ... CONCURRENTLY would not need a lock on the table. But Postgres does not allow it if there is a default
// partition, and a detached partition would remain if its rows are not delivered.
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

// lock locks partitions against writers until tx ends, and returns them. It skips partitions that have been dropped or
// renamed meanwhile.
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
			`SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = $1 AND inhrelid = $2 AND inhrelid = pg_catalog.to_regclass($3))`, r.oid, part.OID, part.Name)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", part.Name, err)
		}
		if same {
			locked = append(locked, part)
		}
	}
	return locked, nil
}

// drop drops partitions, and reports whether it got the lock on the table. It gives way to a transaction that waits to
// write to one of the partitions: that transaction has a lock on the table, so that a DROP would deadlock with it.
func (p *pruner) drop(ctx context.Context, tx pgx.Tx, partitions []part) (bool, error) {
	names, oids := make([]string, len(partitions)), make([]uint32, len(partitions))
	for i, one := range partitions {
		names[i], oids[i] = one.Name, one.OID
	}
	for range dropAttempts {
		met, err := queryOne[bool](ctx, p.work, `
			SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE NOT granted AND locktype = 'relation' AND mode = 'RowExclusiveLock'
				AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
				AND relation IN (SELECT t.relid FROM pg_catalog.unnest($1::oid[]) AS o, pg_catalog.pg_partition_tree(o) AS t))`, oids)
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

// try runs a statement in tx. It reports false if the statement did not get a lock in time; tx remains usable.
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

// limitLockWait sets lock_timeout for the rest of tx, to at least a millisecond.
func limitLockWait(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, max(1, limit.Milliseconds())))
	return err
}

// SQLSTATEs, as in https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	undefinedTable        = "42P01"
	lockNotAvailable      = "55P03"
	deadlockDetected      = "40P01"
	insufficientPrivilege = "42501"
	serializationFailure  = "40001"
)

// inTheWay reports whether err is a conflict with another transaction.
func inTheWay(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{lockNotAvailable, deadlockDetected, serializationFailure}, refusal.Code)
}
