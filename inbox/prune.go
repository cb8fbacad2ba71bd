package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Pruned is what Prune has done.
type Pruned struct {
	Rows    int64    // claims that were deleted
	Dropped []string // partitions that were dropped, with all their claims
	Created []string // partitions for coming days
}

const (
	pruneBlocks  = 128 // blocks to a batch: some 15,000 rows
	daysAhead    = 14
	dropAttempts = 5
	dropWait     = time.Second
	lockNotHad   = "55P03" // lock_not_available
	pruneMinimum = time.Hour
)

// Prune forgets claims of all consumers that are older than horizon, which is at least an hour. An
// event that comes again after its claim is forgotten has its effects a second time, so horizon
// must exceed the longest time after which a record may come again: the retention of the topics
// (consumers may start from the beginning), and whatever is replayed into them, the time that the
// relay may be behind and that an event may wait here added. Claims of a compacted topic are never
// to be forgotten.
//
// Rows are deleted a few megabytes at a time, each batch in a transaction of its own, in one pass
// over the table: there is no index on processed_at, which every claim would pay for. An age is the
// time since the claim. Of a partitioned table ([Config.Partitioned] of migrations) whole
// partitions are dropped, by the time that their ids were made; rows are deleted from the default
// one only; and the partitions of the next 14 days are created, so calling Prune once a day is
// all such a table needs. Dropping a partition locks the table for an instant; Prune lets
// claims go first and tries again some times.
//
// It may be repeated, run concurrently, and be interrupted. It needs DELETE and SELECT on the
// table; to drop and create partitions it must be run by the owner.
func Prune(ctx context.Context, db DB, horizon time.Duration) (Pruned, error) {
	return Schema("").Prune(ctx, db, horizon)
}

// Prune does what the function of that name does, in this schema.
func (s Schema) Prune(ctx context.Context, db DB, horizon time.Duration) (Pruned, error) {
	var done Pruned
	if horizon < pruneMinimum {
		return done, fmt.Errorf("inbox: prune: a horizon of %s is less than an hour", horizon)
	}
	parts, before, err := s.survey(ctx, db, horizon)
	if err != nil {
		return done, explain("look at "+claimsTable, err)
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
			continue // young ids, and so young claims
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

// A part is a table that holds claims: the only one, or a partition.
type part struct {
	name   string // in SQL
	blocks int64
	last   pgtype.Timestamptz // end of the day whose ids it holds; NULL: any ids
}

// survey returns the tables that hold claims, and the time that is horizon ago on the server's
// clock.
func (s Schema) survey(ctx context.Context, db DB, horizon time.Duration) (parts []part, before time.Time, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp() - $1::bigint * interval '1 microsecond'`, horizon.Microseconds()).
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

// prune deletes what is older than before, block by block: a TID range scan, so that no batch reads
// what an earlier one has read.
func (p part) prune(ctx context.Context, db DB, before time.Time, rows *int64) error {
	for block := int64(0); block < p.blocks; block += pruneBlocks {
		err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
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

// drop drops a partition. That needs the table for itself for an instant, and while it waits for the
// claims that are under way, all others would wait behind it: so it does not wait for long.
func drop(ctx context.Context, db DB, name string) error {
	var err error
	for range dropAttempts {
		err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
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

func (s Schema) createPartitions(ctx context.Context, db DB) (names []string, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT `+s.table(claimsTable+"_create_partitions")+`($1::integer)`, daysAhead)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return names, err
}
