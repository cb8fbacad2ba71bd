package catalog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// EndSender terminates the WAL sender pid if it streams from the slot, and reports whether it did. The
// role must be the same as that of the WAL sender.
// https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-SIGNAL
func EndSender(ctx context.Context, conn *pgconn.Config, slot string, pid uint32) (ended bool, err error) {
	c, err := replication.Connect(ctx, readOnly(conn, "watch"))
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close(ctx) }()
	found, err := queryOne(ctx, c, pgx.RowTo[bool], fmt.Sprintf("terminate WAL sender %d", pid),
		"SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND active_pid = $2",
		slot, strconv.FormatUint(uint64(pid), 10))
	return found != nil && *found, err
}
