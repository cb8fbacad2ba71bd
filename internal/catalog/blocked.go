package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
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

// publicationHolders selects the locks on the tables of publication $1 that the reader of its tables waits for: from Postgres
// 16 on, pg_publication_tables locks every table to read its columns. A session that waits for its lock blocks those
// behind it, too.
func publicationHolders(version int) string {
	inSchema := "false"
	if version >= 150000 {
		inSchema = "c.relnamespace IN (SELECT pnnspid FROM pg_catalog.pg_publication_namespace WHERE pnpubid = p.oid)"
	}
	return `l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
		AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
		AND l.relation IN (
			WITH RECURSIVE publication AS (SELECT * FROM pg_catalog.pg_publication WHERE pubname = $1),
			part(oid) AS ((
				SELECT r.prrelid FROM publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
				UNION
				SELECT c.oid FROM publication p JOIN pg_catalog.pg_class c ON p.puballtables OR ` + inSchema + `)
				UNION
				SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid)
			SELECT oid FROM part)`
}

// olderLocks selects the locks of transactions that are older than lock_timeout, that is, than the attempt that it has ended.
const olderLocks = "COALESCE(l.waitstart, a.xact_start, '-infinity') <= pg_catalog.statement_timestamp() - pg_catalog.current_setting('lock_timeout')::interval"

// A LockError is a statement that gave up waiting for a lock, or one that still waits, see [Waiting]. It wraps
// [replication.ErrBusy].
type LockError struct {
	err     error
	waited  string // lock_timeout of the session, or the time until now
	waiting bool   // it has not given up
	what    string // what it waited for
	holders []holder
}

// ErrOlderTransactions means that the creation of a slot has waited too long for the end of every older transaction that has written. A
// [LockError] is it.
var ErrOlderTransactions = errors.New("older transactions have not ended")

// Is makes e ErrOlderTransactions if it is about the creation of a slot.
func (e *LockError) Is(target error) bool {
	return target == ErrOlderTransactions && e.what == olderTransactions
}

// Error names the lock, and the transactions that hold it if they are known.
func (e *LockError) Error() string {
	text := fmt.Sprintf("%v: it waited %s for %s", e.err, e.waited, e.what)
	again := ", and try again"
	if e.waiting {
		text = fmt.Sprintf("%v: it has waited %s for %s", e.err, e.waited, e.what)
		again = ""
	}
	switch {
	case len(e.holders) > 0:
		text += "; commit these transactions, or end them with pg_terminate_backend(<process>) or ROLLBACK PREPARED" + again + ":"
	case !e.waiting:
		text += "; wait for the end of the transaction that holds it, such as an ALTER TABLE, LOCK TABLE or VACUUM FULL, or find and end it: pg_locks has its process"
	}
	for _, h := range e.holders {
		text += "\n  " + h.String()
	}
	return text
}

// Unwrap returns the error of the statement.
func (e *LockError) Unwrap() error { return e.err }

// A holder is a transaction that holds a lock, or waits for it before ours. Fields that the role may not see are empty.
type holder struct {
	pid                                int32
	gid                                string // of a prepared transaction, which has no process
	table                              string // in SQL, with its schema; empty: the lock is not that of a table
	waits                              bool   // for the lock itself
	user, database, application, state string
	command                            string   // the first two words of its last statement, such as ALTER TABLE
	age, statement                     *float64 // seconds since the start of the transaction, and of its last statement
}

func (h holder) String() string {
	text := fmt.Sprintf("process %d: user %q, database %q, application %q", h.pid, h.user, h.database, h.application)
	if h.gid != "" {
		text = fmt.Sprintf("prepared transaction %q: user %q, database %q", h.gid, h.user, h.database)
	}
	for _, part := range []string{h.state, h.command} {
		if part != "" {
			text += ", " + part
		}
	}
	if h.age != nil {
		text += ", started " + ago(*h.age)
	}
	if h.statement != nil {
		text += ", last statement " + ago(*h.statement)
	}
	if h.waits {
		text += fmt.Sprintf(", itself waiting for the lock: see SELECT pg_blocking_pids(%d)", h.pid)
	}
	return text
}

func ago(seconds float64) string {
	return time.Duration(seconds*float64(time.Second)).Round(time.Millisecond).String() + " ago"
}

// ExplainLock returns err as a [*LockError] with the transactions that lock tables of the publication, if err says that a statement
// waited for a lock until lock_timeout. It rolls back the transaction of conn that the error has ended.
func ExplainLock(ctx context.Context, conn executor, err error, publication string) error {
	if sqlState(err) != lockNotAvailable {
		return err
	}
	if conn.TxStatus() == 'E' {
		_, _ = conn.ExecParams(ctx, "ROLLBACK", nil, nil, nil, nil).Close()
	}
	version, errVersion := readVersion(ctx, conn)
	if errVersion != nil {
		return err
	}
	return blocked(ctx, conn, err, fmt.Sprintf("a lock on a table of publication %q", publication), publicationHolders(version), publication)
}

// blocked returns err as a [*LockError] if it is a lock timeout. what is what the statement waited for, if nobody is
// found who holds one of the locks. It leaves out transactions that are younger than the attempt.
func blocked(ctx context.Context, conn executor, err error, what, locks string, args ...string) error {
	if sqlState(err) != lockNotAvailable {
		return err
	}
	e := &LockError{err: err, what: what, waited: "until lock_timeout"}
	if waited, err := queryOne(ctx, conn, pgx.RowTo[string], "read lock_timeout", "SELECT pg_catalog.current_setting('lock_timeout')"); err == nil {
		e.waited = *waited
	}
	e.holders, _ = readHolders(ctx, conn, locks+" AND "+olderLocks, args...) // without them, the error is less precise
	var tables []string
	for _, h := range e.holders {
		if h.table != "" && !slices.Contains(tables, h.table) {
			tables = append(tables, h.table)
		}
	}
	if len(tables) > 0 {
		e.what = "a lock on table " + strings.Join(tables, ", ")
	}
	return e
}

// readHolders returns the holders of locks: first those that hold them, the oldest first.
func readHolders(ctx context.Context, conn executor, locks string, args ...string) ([]holder, error) {
	return query(ctx, conn, func(row pgx.CollectableRow) (h holder, err error) {
		return h, row.Scan(&h.pid, &h.gid, &h.table, &h.waits, &h.user, &h.database, &h.application, &h.state, &h.command, &h.age, &h.statement)
	}, "look for what holds the lock", `
		SELECT DISTINCT COALESCE(l.pid, 0), COALESCE(p.gid, ''), CASE WHEN l.locktype = 'relation' THEN pg_catalog.format('%I.%I', n.nspname, c.relname) ELSE '' END, NOT l.granted,
			COALESCE(a.usename, p.owner, ''), COALESCE(a.datname, p.database, ''), COALESCE(a.application_name, ''), COALESCE(a.state, ''),
			COALESCE(upper(pg_catalog.substring(a.query, '^\s*([[:alpha:]]+(\s+[[:alpha:]]+)?)')), ''),
			extract(epoch FROM pg_catalog.statement_timestamp() - COALESCE(a.xact_start, p.prepared))::float8,
			extract(epoch FROM pg_catalog.statement_timestamp() - a.query_start)::float8
		FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
		LEFT JOIN (
			SELECT p.*, id.virtualtransaction FROM pg_catalog.pg_prepared_xacts p
			JOIN pg_catalog.pg_locks id ON id.pid IS NULL AND id.locktype = 'transactionid' AND id.transactionid = p.transaction) p
			ON l.pid IS NULL AND p.virtualtransaction = l.virtualtransaction
		LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() AND `+locks+`
		ORDER BY 4, 10 DESC NULLS LAST`, args...)
}

// Waiting is called while the creation of a slot waits for transactions in progress: after 10 s, and then every 10 s. So it
// also shows that the server still responds. err is a [*LockError] that names the transactions; it is not the end of the wait,
// which has no limit but that of the context.
type Waiting func(err error)

// whileCreating calls create. Unless s.waiting is nil, it calls s.waiting while the server process pid creates the slot. If the
// server does not respond, or the process has ended, it ends the context of create. It uses s.conn meanwhile.
func (s *setup) whileCreating(ctx context.Context, doing string, pid uint32, create func(context.Context) error) error {
	if s.waiting == nil {
		return create(ctx)
	}
	began := time.Now()
	report := func(ctx context.Context) error {
		holders, err := s.readAwaited(ctx, pid)
		if err == nil {
			s.waiting(&LockError{
				err: fmt.Errorf("%w: %s", replication.ErrBusy, doing), waiting: true, waited: time.Since(began).Round(time.Second).String(),
				what: olderTransactions, holders: holders,
			})
		}
		return err
	}
	return Meanwhile(ctx, min(CheckInterval, s.cfg.lockTimeout), report, create)
}

// olderTransactions is what the creation of a slot waits for.
const olderTransactions = "the end of older transactions"

// errCreationEnded: the server process that created a slot has ended, and perhaps nothing has told its client.
var errCreationEnded = fmt.Errorf("%w: the server does not create the slot any more", replication.ErrUnreachable)

// readAwaited returns the transactions that the creation of a slot by process pid waits for: the one that it waits for now, and
// those that are older than lockTimeout.
func (s *setup) readAwaited(ctx context.Context, pid uint32) ([]holder, error) {
	process := fmt.Sprint(pid)
	runs, err := queryOne(ctx, s.conn, pgx.RowTo[bool], "look for the process that creates the slot",
		"SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE pid::text = $1)", process)
	switch {
	case err != nil:
		return nil, err
	case !*runs:
		return nil, errCreationEnded
	}
	return readHolders(ctx, s.conn, transactionHolders+" AND ("+olderLocks+` OR l.transactionid IN (
		SELECT transactionid FROM pg_catalog.pg_locks WHERE pid::text = $1 AND NOT granted))`, process)
}
