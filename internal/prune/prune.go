package prune

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A pruner prunes the tables of one database, over two connections: one holds the snapshot or the locks, the other writes
// marks, waits and deletes.
type pruner struct {
	cfg            Config
	lockConn, work *pgx.Conn
	warnings       []string // of the server, not reported yet
	locked         []error  // a *advisory.HeldError for each table that another session has locked
}

// Run prunes the tables in order. The report is complete up to an error. Run may be repeated at any time. Errors:
//   - An error that wraps [ErrConfig], such as a [*NotPublishedError], means that the configuration does not fit.
//   - A [*NotConfirmedError] means that the relay is not running or is behind.
//   - An *[advisory.HeldError] means that another session holds the lock of a table, so that Run skipped rows of it.
//   - An error that wraps [replication.ErrAccess], such as a [*catalog.HiddenError] or a [*catalog.RightError], names a right that is missing.
//   - A [*catalog.LockError] names the transactions that locked a table for longer than Wait.
//   - A *[pgconn.PgError] is an error of the server.
func Run(ctx context.Context, cfg Config) (Report, error) {
	p := &pruner{cfg: cfg.withDefaults()}
	report := Report{DryRun: cfg.DryRun}
	if err := p.connect(ctx); err != nil {
		return report, err
	}
	defer p.close(ctx)
	err := p.run(ctx, &report)
	return report, catalog.ExplainLock(ctx, p.work.PgConn(), err, p.cfg.Publication)
}

// run is Run, once connected.
func (p *pruner) run(ctx context.Context, report *Report) error {
	if err := p.checkServer(ctx); err != nil {
		return err
	}
	relations := make([]*relation, len(p.cfg.Tables))
	report.Tables = make([]Table, len(p.cfg.Tables))
	for i, name := range p.cfg.Tables { // partitions first: they do not depend on the relay
		r, err := p.describe(ctx, name)
		if err == nil {
			report.Tables[i] = Table{Name: r.name, Before: r.before, Whole: r.ends != "", Created: []string{}, Dropped: []Partition{}, Kept: []Partition{}}
			err = p.checkSchema(ctx, r)
		}
		if err == nil {
			err = p.createPartitions(ctx, r, &report.Tables[i])
		}
		if err == nil {
			err = p.checkRights(ctx, r)
		}
		if err != nil {
			report.Tables = report.Tables[:i]
			return fmt.Errorf("table %s: %w", name, err)
		}
		relations[i] = r
	}
	for _, r := range relations { // all tables before any row is deleted
		if err := p.verifyPublished(ctx, r, p.cfg.Wait); err != nil {
			return fmt.Errorf("table %s: %w", r.name, err)
		}
	}
	if _, err := p.streams(ctx); err != nil {
		return err
	}
	for i, r := range relations {
		if err := p.table(ctx, r, &report.Tables[i]); err != nil {
			return errors.Join(append(p.locked, fmt.Errorf("table %s: %w", r.name, err))...)
		}
	}
	return errors.Join(p.locked...)
}

func (p *pruner) connect(ctx context.Context) (err error) {
	source := p.cfg.Source.Copy()
	source.Config = *replication.Ordinary(&source.Config)
	source.RuntimeParams["datestyle"] = "ISO" // bounds of partitions are read as text, whose zone others abbreviate
	source.RuntimeParams["lock_timeout"] = strconv.FormatInt(p.cfg.Wait.Milliseconds(), 10)
	source.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			p.warnings = append(p.warnings, n.Message)
		}
	}
	if p.lockConn, err = pgx.ConnectConfig(ctx, source); err != nil {
		return err
	}
	if p.work, err = pgx.ConnectConfig(ctx, source); err != nil {
		_ = p.lockConn.Close(ctx)
	}
	return err
}

// closeTimeout is the time limit for closing the connections.
const closeTimeout = 5 * time.Second

func (p *pruner) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = p.lockConn.Close(ctx)
	_ = p.work.Close(ctx)
}

func (p *pruner) checkServer(ctx context.Context) error {
	standby, err := queryOne[bool](ctx, p.work, `SELECT pg_catalog.pg_is_in_recovery()`)
	if err == nil && standby {
		err = fmt.Errorf("%w: the server is a standby; the DSN must lead to the primary", ErrConfig)
	}
	return err
}

// table prunes one table.
func (p *pruner) table(ctx context.Context, r *relation, t *Table) error {
	for _, publication := range r.deletesVia {
		t.warn(fmt.Sprintf("publication %s also publishes DELETEs, which Postgres sends to the relay for nothing; ALTER PUBLICATION %[1]s SET (publish = 'insert')", publication))
	}
	if err := p.dropPartitions(ctx, r, t); err != nil {
		return err
	}
	for _, leaf := range r.leaves {
		if err := p.deleteRows(ctx, r, leaf, t); err != nil {
			return err
		}
	}
	return nil
}

// ours locks a table for this prune until tx ends, and reports whether it got the lock. The holder need not be another
// prune, so Run returns an error if it did not.
func (p *pruner) ours(ctx context.Context, tx pgx.Tx, table part) (bool, error) {
	ok, err := queryOne[bool](ctx, tx, `SELECT pg_catalog.pg_try_advisory_xact_lock($1, $2::oid::bigint::bit(32)::int)`, prunes, table.OID)
	if err != nil || ok {
		return ok, err
	}
	key := strconv.FormatInt(prunes<<32|int64(table.OID), 10)
	holders, err := queryOne[string](ctx, tx, advisory.Holders(key, advisory.TwoKeys))
	if err != nil {
		return false, fmt.Errorf("find out who holds the lock of %s: %w", table.Name, err)
	}
	held := &advisory.HeldError{What: "prune " + table.Name, Holders: holders}
	if n := len(p.locked); n == 0 || p.locked[n-1].Error() != held.Error() { // ours is called once per group of partitions
		p.locked = append(p.locked, held)
	}
	return false, nil
}

// prunes is the first key of the advisory locks of prunes. The second is the OID of the table.
const prunes = 0x6f637072

// queryOne returns the single value of a query.
func queryOne[T any](ctx context.Context, conn querier, sql string, args ...any) (T, error) {
	rows, _ := conn.Query(ctx, sql, args...) // its error comes with the rows
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}

// A querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
