package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An OpenTransaction is a transaction that has written and has not ended. For every slot of the cluster,
// Postgres retains the WAL from its start on, in whatever database it runs and whatever position is
// confirmed. A new stream decodes all of that WAL again.
type OpenTransaction struct {
	XID                         uint32
	PID                         int32  // of its process; 0: a prepared transaction
	GID                         string // of a prepared transaction
	User, Database, Application string
	State                       string        // of its process, such as idle in transaction; empty: the role may not see it
	Age                         time.Duration // since its start or its PREPARE TRANSACTION; 0: the role may not see it
}

// String names the transaction, its user and its database.
func (t *OpenTransaction) String() string { return t.object() + " (" + t.describe() + ")" }

// object names the transaction by its process or its GID.
func (t *OpenTransaction) object() string {
	if t.PID == 0 {
		return fmt.Sprintf("prepared transaction %q", t.GID)
	}
	return fmt.Sprintf("transaction of process %d", t.PID)
}

// describe returns its user, database, application and state.
func (t *OpenTransaction) describe() string {
	text := fmt.Sprintf("user %q, database %q", t.User, t.Database)
	if t.PID != 0 {
		text += fmt.Sprintf(", application %q", t.Application)
	}
	if t.State != "" {
		text += ", " + t.State
	}
	return text
}

// Remedy says how to end the transaction.
func (t *OpenTransaction) Remedy() string {
	if t.PID != 0 {
		return fmt.Sprintf("wait until it ends, or end it with: SELECT pg_terminate_backend(%d)", t.PID)
	}
	gid := replication.QuoteLiteral(t.GID)
	return fmt.Sprintf("end it, in its database, with: COMMIT PREPARED %s or ROLLBACK PREPARED %s", gid, gid)
}

// readOldest returns the oldest transaction of the cluster that has written, or nil if there is none. Of
// a session of another role, a role without pg_read_all_stats sees little more than the process id.
// https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW
func readOldest(ctx context.Context, conn executor) (*OpenTransaction, error) {
	return queryOne(ctx, conn, func(row pgx.CollectableRow) (t OpenTransaction, err error) {
		var age float64
		err = row.Scan(&t.XID, &t.PID, &t.GID, &t.User, &t.Database, &t.Application, &t.State, &age)
		t.Age = time.Duration(age * float64(time.Second))
		return t, err
	}, "read the oldest transaction", `
		SELECT xid, pid, gid, username, datname, application, state, COALESCE(age, 0)::float8
		FROM (
			SELECT backend_xid, pid, '', COALESCE(usename, ''), COALESCE(datname, ''), COALESCE(application_name, ''),
				COALESCE(state, ''), extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)
			FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL
			UNION ALL
			SELECT transaction, 0, gid, owner, database, '', '', extract(epoch FROM pg_catalog.clock_timestamp() - prepared)
			FROM pg_catalog.pg_prepared_xacts
		) t (xid, pid, gid, username, datname, application, state, age)
		ORDER BY pg_catalog.age(xid) DESC LIMIT 1`)
}

// LongTransaction is the default of [History.LongTransaction].
const LongTransaction = 5 * time.Minute

// An oldest follows the oldest transaction.
type oldest struct {
	xid    uint32    // of the last call of look; 0: none
	since  time.Time // the first time it was the oldest
	warned string    // object of the current warning; empty: none
}

// look compares a State with the previous ones. It returns a warning if the oldest transaction has been
// open for longer than patience, another one if that transaction is then prepared, and one with Over when
// it has ended.
func (o *oldest) look(c *State, patience time.Duration) []Warning {
	var warnings []Warning
	t := c.Oldest
	if t == nil || t.XID != o.xid {
		if o.warned != "" {
			warnings = append(warnings, Warning{Object: o.warned, Over: true, Text: "it has ended; Postgres no longer retains WAL for it"})
		}
		*o = oldest{}
	}
	if t == nil || c.Slot == nil {
		return warnings
	}
	if o.xid == 0 {
		o.xid, o.since = t.XID, c.ReadAt
	}
	open := o.open(c)
	if open < patience || o.warned == t.object() {
		return warnings
	}
	o.warned = t.object()
	return append(warnings, Warning{Object: o.warned, Text: fmt.Sprintf(
		"it has been open for %s (%s): until it ends, slot %q retains the WAL from %s on, now %s, which Postgres decodes again after every reconnect; %s",
		open.Round(max(time.Second, open/100)), t.describe(), c.SlotName, c.Slot.RestartLSN, terminal.Size(c.Slot.retained(c.WALEnd)), t.Remedy())})
}

// open returns for how long the oldest transaction is known to be open.
func (o *oldest) open(c *State) time.Duration { return max(c.Oldest.Age, c.ReadAt.Sub(o.since)) }
