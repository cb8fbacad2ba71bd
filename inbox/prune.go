package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Pruned is the result of [Store.Prune].
type Pruned struct {
	Rows    int64    // deleted claims
	Dropped []string // dropped partitions
	Created []string // created partitions
}

// MinPruneAge is the smallest age that [Store.Prune] accepts.
const MinPruneAge = time.Hour

const (
	pruneBlocks  = 128 // blocks in a batch: about 15,000 rows
	daysAhead    = 14
	dropAttempts = 5
	dropWait     = time.Second
	lockNotHad   = "55P03" // lock_not_available
)

// Prune deletes claims of all consumers that are older than age, which is at least [MinPruneAge].
//
// If an event is delivered again after its claim was deleted, its effects happen again. So age must
// exceed the longest time after which a record can be delivered again. That is the retention of the
// topics, because a consumer group may be reset to the beginning, or the age of events that you
// replay, plus the lag of the relay and the time an event can wait in the inbox. Never prune the
// claims of a compacted topic.
//
// An unpartitioned table is read once from start to end. Rows are deleted in batches of a few
// megabytes, each in its own transaction. There is no index on processed_at, because every claim
// would have to maintain it.
//
// In a partitioned table (Config.Partitioned of package migrations) Prune drops whole partitions, by
// the time in the UUIDv7 of their events, and deletes rows only from the default partition. It also
// creates the partitions of the next 14 days, so run it once a day. Dropping a partition locks the
// table for a moment. If the lock is not free within a second, Prune lets the claims go first and
// tries again, five times in all.
//
// Prune may be repeated, run concurrently and be interrupted. It needs SELECT and DELETE on the
// table. Only the owner of the table can drop and create partitions.
func (s Store) Prune(ctx context.Context, db DB, age time.Duration) (Pruned, error) {
	var done Pruned
	if age < MinPruneAge {
		return done, fmt.Errorf("inbox: prune: an age of %s is less than %s", age, MinPruneAge)
	}
	parts, before, err := s.parts(ctx, db, age)
	if err != nil {
		return done, explain("inspect "+claimsTable, err)
	}
	for _, part := range parts {
		if part.last.Valid && !part.last.Time.After(before) {
			if err := drop(ctx, db, part.name); err != nil {
				return done, explain("drop partition "+part.name, err)
			}
			done.Dropped = append(done.Dropped, part.name)
			continue
		}
		if part.last.Valid {
			continue // its ids are young, and so its claims are
		}
		if err := part.prune(ctx, db, before, &done.Rows); err != nil {
			return done, explain("prune "+part.name, err)
		}
	}
	if len(parts) > 1 {
		done.Created, err = s.createPartitions(ctx, db)
	}
	return done, explain("create partitions", err)
}

// A part is a table of claims: the whole table, or a partition.
type part struct {
	name   string // quoted
	blocks int64
	last   pgtype.Timestamptz // upper bound of its ids' time; NULL: none
}

// parts returns the tables of claims, and the server's time minus age.
func (s Store) parts(ctx context.Context, db DB, age time.Duration) (parts []part, before time.Time, err error) {
	err = inTx(ctx, db, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp() - $1::bigint * interval '1 microsecond'`, age.Microseconds()).
			Scan(&before); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			SELECT format('%I.%I', n.nspname, c.relname), COALESCE(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint,
				to_timestamp(('x' || replace(left(
					substring(pg_get_expr(c.relpartbound, c.oid) FROM $re$TO \('([0-9a-f-]{36})'\)$re$), 13), '-', ''))::bit(48)::bigint / 1000.0)
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind = 'r' AND (c.oid = $1::text::regclass
				OR c.oid IN (SELECT relid FROM pg_partition_tree($1::text::regclass)))
			ORDER BY 3, 1`, s.table(claimsTable))
		if err != nil {
			return err
		}
		parts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (part, error) {
			var p part
			err := row.Scan(&p.name, &p.blocks, &p.last)
			return p, err
		})
		return err
	})
	return parts, before, err
}

// prune deletes older claims block by block. A TID range scan keeps a batch from reading what an
// earlier one has read.
func (p part) prune(ctx context.Context, db DB, before time.Time, rows *int64) error {
	for block := int64(0); block == 0 || block < p.blocks; block += pruneBlocks { // an empty table, too, so that a missing privilege is detected
		err := inTx(ctx, db, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, `DELETE FROM `+p.name+` WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND processed_at < $3::timestamptz`,
				fmt.Sprintf("(%d,0)", block), fmt.Sprintf("(%d,0)", block+pruneBlocks), before)
			*rows += tag.RowsAffected()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drop drops a partition. It waits only briefly for the exclusive lock: new claims wait behind it.
func drop(ctx context.Context, db DB, name string) error {
	var err error
	for range dropAttempts {
		err = inTx(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1::text, true)`, fmt.Sprint(dropWait.Milliseconds())); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+name)
			return err
		})
		if sqlState(err) != lockNotHad {
			return err
		}
		timer := time.NewTimer(dropWait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return err
}

func (s Store) createPartitions(ctx context.Context, db DB) (names []string, err error) {
	err = inTx(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+s.table(claimsTable+"_create_partitions")+`($1::integer)`, daysAhead)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return names, err
}
