package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A NotPublishedError reports that the relay's publication leaves out rows of a table. The slot then
// confirms positions after rows that were never delivered. It is an [ErrConfig].
type NotPublishedError struct {
	Publication string
	reason      string
}

// Error names what the publication leaves out, and the statement that adds it.
func (e *NotPublishedError) Error() string {
	return fmt.Sprintf("publication %q %s", e.Publication, e.reason)
}

// Unwrap returns ErrConfig.
func (e *NotPublishedError) Unwrap() error { return ErrConfig }

// A leaf is a table that has rows of its own, and what the relay's publication does with them.
type leaf struct {
	Name      string // in SQL, with its schema
	Add       string // the table to add to a publication that lacks it: itself, or the root of a partition
	Logged    bool   // not UNLOGGED: its rows are in the WAL
	Published bool   // by its own name or that of an ancestor
	Filtered  bool   // published with a row filter
}

// verifyPublished returns a [*NotPublishedError] unless the relay's publication publishes each row that
// is inserted into the table or one of its partitions. It waits for locks for at most wait.
func (p *pruner) verifyPublished(ctx context.Context, r *relation, wait time.Duration) error {
	var found published
	err := pgx.BeginFunc(ctx, p.work, func(tx pgx.Tx) (err error) {
		// The server locks tables to list their partitions and columns. The holder of such a lock may
		// wait for a partition that our other connection has locked, which Postgres does not detect as
		// a deadlock.
		if err := limitLockWait(ctx, tx, wait); err != nil {
			return err
		}
		found, err = p.readPublished(ctx, tx, r)
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &NotPublishedError{p.cfg.Publication, "does not exist in this database"}
	case err != nil:
		return fmt.Errorf("read publication %q: %w", p.cfg.Publication, err)
	}
	return found.verify()
}

// published is what the relay's publication does with a table.
type published struct {
	catalog.Publication // Name, Insert and AllTables

	leaves []leaf
}

// verify is [pruner.verifyPublished] of what was read.
func (p *published) verify() error {
	refuse := func(format string, args ...any) error {
		return &NotPublishedError{p.Name, fmt.Sprintf(format, args...)}
	}
	if !p.Insert {
		return refuse("does not publish INSERT; ALTER PUBLICATION %s SET (publish = 'insert')", replication.QuoteIdent(p.Name))
	}
	for _, l := range p.leaves {
		switch {
		case !l.Logged:
			return refuse("does not publish %s, which is UNLOGGED; ALTER TABLE %[1]s SET LOGGED", l.Name)
		case !l.Published:
			return refuse("does not publish %s; %s", l.Name, p.Add(l.Add))
		case l.Filtered:
			return refuse("publishes %s with a row filter, and prune cannot tell filtered rows from delivered ones; publish all its rows", l.Name)
		}
	}
	return nil
}

// readPublished reads the publication, and the tables that contain the rows of r. The publication names the root
// of a partition (publish_via_partition_root) or the partition, and the row filter of that name
// applies: https://www.postgresql.org/docs/current/logical-replication-row-filter.html
func (p *pruner) readPublished(ctx context.Context, tx pgx.Tx, r *relation) (found published, err error) {
	found.Name = p.cfg.Publication
	err = tx.QueryRow(ctx, `SELECT pubinsert, puballtables FROM pg_catalog.pg_publication WHERE pubname = $1`, p.cfg.Publication).Scan(&found.Insert, &found.AllTables)
	if err != nil {
		return found, err
	}
	// Before Postgres 15 the function has one column, so t is a number, and there are no row filters.
	rows, _ := tx.Query(ctx, `WITH RECURSIVE `+partsOf+`
		SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, CASE WHEN c.relispartition THEN $3 ELSE pg_catalog.format('%I.%I', n.nspname, c.relname) END, c.relpersistence = 'p', count(t.relid) > 0, count(pg_catalog.to_jsonb(t) ->> 'qual') > 0
		FROM (
			SELECT part.oid FROM part JOIN pg_catalog.pg_class c ON c.oid = part.oid AND NOT c.relispartition
			UNION SELECT relid FROM pg_catalog.pg_partition_tree($1)) leaf -- it waits for a transaction that drops a partition
		JOIN pg_catalog.pg_class c ON c.oid = leaf.oid AND c.relkind = 'r'
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		CROSS JOIN LATERAL (SELECT c.oid AS relid UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(c.oid) AS relid) named
		LEFT JOIN pg_catalog.pg_get_publication_tables($2::text) t ON t.relid = named.relid
		GROUP BY c.oid, 1, 2, 3 ORDER BY 1`, r.oid, p.cfg.Publication, r.name)
	found.leaves, err = pgx.CollectRows(rows, pgx.RowToStructByPos[leaf])
	return found, err
}
