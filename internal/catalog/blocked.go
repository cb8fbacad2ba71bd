package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// transactionHolders selects the locks that the creation of a slot waits for: every transaction
// that has written holds a lock on its own id.
const transactionHolders = "l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'"

// tableHolders selects the locks on tables that CREATE PUBLICATION waits for.
func tableHolders(outboxes []Outbox) string {
	var oids []string
	for _, o := range outboxes {
		oids = append(oids, oid(o.table().OID))
	}
	return "l.locktype = 'relation' AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')" +
		" AND l.relation IN (" + strings.Join(oids, ", ") + ")"
}

// A holder is a transaction that holds a lock. Fields that the role may not see are empty.
type holder struct {
	pid                                int32
	user, database, application, state string
	age, statement                     *float64 // seconds since the start of the transaction, and of its last statement
}

func (h holder) String() string {
	text := fmt.Sprintf("process %d: user %q, database %q, application %q", h.pid, h.user, h.database, h.application)
	if h.state != "" {
		text += ", " + h.state
	}
	if h.age != nil {
		text += ", started " + ago(*h.age)
	}
	if h.statement != nil {
		text += ", last statement " + ago(*h.statement)
	}
	return text
}

// A preparedTransaction holds locks without a process.
type preparedTransaction struct {
	gid, owner, database string
	age                  float64
}

func (p preparedTransaction) String() string {
	return fmt.Sprintf("prepared transaction %q: user %q, database %q, prepared %s", p.gid, p.owner, p.database, ago(p.age))
}

func ago(seconds float64) string {
	return time.Duration(seconds*float64(time.Second)).Round(time.Millisecond).String() + " ago"
}

// blocked adds to err, a lock timeout, the transactions that hold one of the locks. It leaves out those
// that are younger than the attempt.
func (s *setup) blocked(ctx context.Context, err error, holders string) error {
	running, errRunning := query(ctx, s.conn, func(row pgx.CollectableRow) (h holder, err error) {
		return h, row.Scan(&h.pid, &h.user, &h.database, &h.application, &h.state, &h.age, &h.statement)
	}, "look for what holds the lock", `
		SELECT l.pid, COALESCE(a.usename, ''), COALESCE(a.datname, ''), COALESCE(a.application_name, ''), COALESCE(a.state, ''),
			extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8,
			extract(epoch FROM pg_catalog.clock_timestamp() - a.query_start)::float8
		FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		WHERE l.granted AND l.pid <> pg_catalog.pg_backend_pid() AND `+holders+`
			AND (a.xact_start IS NULL OR a.xact_start <= pg_catalog.clock_timestamp() - $1::interval)
		ORDER BY a.xact_start`, millis(s.cfg.lockTimeout)+" ms")
	prepared, errPrepared := query(ctx, s.conn, func(row pgx.CollectableRow) (p preparedTransaction, err error) {
		return p, row.Scan(&p.gid, &p.owner, &p.database, &p.age)
	}, "look for prepared transactions", `
		SELECT gid, owner, database, extract(epoch FROM pg_catalog.clock_timestamp() - prepared)::float8
		FROM pg_catalog.pg_prepared_xacts ORDER BY prepared`)
	if err2 := errors.Join(errRunning, errPrepared); err2 != nil {
		return fmt.Errorf("%w; the holders of the lock could not be read: %w", err, err2)
	}
	var list strings.Builder
	for _, h := range running {
		list.WriteString("\n  " + h.String())
	}
	for _, p := range prepared {
		list.WriteString("\n  " + p.String())
	}
	return fmt.Errorf("%w; it waited %s for these transactions; commit them, or end them with pg_terminate_backend(<process>) or ROLLBACK PREPARED, and try again:%s",
		err, s.cfg.lockTimeout, list.String())
}
