package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
)

// Sessions are the server processes of a program's last setup of a slot. If the connections of that setup were lost in silence,
// they still hold its advisory lock or create a slot: until TCP keepalives fail, or for ever behind a proxy that answers these.
// The zero value has none. One goroutine at a time uses it.
type Sessions struct{ pids []string }

// add adds the process of conn. s may be nil.
func (s *Sessions) add(conn *pgconn.PgConn) {
	if s != nil {
		s.pids = append(s.pids, fmt.Sprint(conn.PID()))
	}
}

// end terminates, over conn, the processes that hold the advisory lock with the key or use a slot. The role must be the same as
// theirs. Another session may have got such a number since, but hardly the lock or a slot too. s may be nil.
// https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-SIGNAL
func (s *Sessions) end(ctx context.Context, conn *pgconn.PgConn, key string) error {
	if s == nil || s.pids == nil {
		return nil
	}
	// 2 s is the time to wait for the end of each: a process that creates a slot rolls back first.
	_, err := query(ctx, conn, pgx.RowTo[bool], "terminate the sessions of an earlier setup", `
		SELECT pg_catalog.pg_terminate_backend(pid, 2000) FROM (
			SELECT l.pid FROM `+advisory.Granted(key, advisory.OneKey)+` l UNION SELECT active_pid FROM pg_catalog.pg_replication_slots
		) p (pid) WHERE pid::text = ANY (pg_catalog.string_to_array($1, ' '))`, strings.Join(s.pids, " "))
	if err == nil {
		s.pids = nil
	}
	return err
}
