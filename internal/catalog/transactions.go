package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An OpenTransaction has written something and has not ended. For every slot of the cluster the
// log is kept from its beginning on, whatever database it is in and whatever is confirmed,
// and a stream that begins anew reads all of that again.
type OpenTransaction struct {
	XID                         uint32
	PID                         int32  // of its process; 0: it is prepared
	GID                         string // of a prepared one
	User, Database, Application string
	State                       string        // of its process, idle in transaction for one; empty: the role may not see it
	Age                         time.Duration // since it began or was prepared; 0: the role may not see it
}

// String says which it is and whose.
func (t *OpenTransaction) String() string { return t.object() + " (" + t.describe() + ")" }

// object names it.
func (t *OpenTransaction) object() string {
	if t.PID == 0 {
		return fmt.Sprintf("prepared transaction %q", t.GID)
	}
	return fmt.Sprintf("transaction of process %d", t.PID)
}

// describe says whose it is.
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

// Remedy is what ends it.
func (t *OpenTransaction) Remedy() string {
	if t.PID != 0 {
		return fmt.Sprintf("let it end, or end it with: SELECT pg_terminate_backend(%d)", t.PID)
	}
	gid := replication.QuoteLiteral(t.GID)
	return fmt.Sprintf("end it, in its database, with: COMMIT PREPARED %s or ROLLBACK PREPARED %s", gid, gid)
}

// readOldest returns the oldest transaction of the cluster, nil if nobody is writing. What
// a role without pg_read_all_stats sees of another's session is little more than its id.
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

// LongTransaction is how long a transaction may be open before it is warned of, unless
// [History.LongTransaction] says otherwise.
const LongTransaction = 5 * time.Minute

// An oldest follows the oldest transaction.
type oldest struct {
	xid    uint32    // at the last look; 0: there was none
	since  time.Time // the first look at which it was the oldest
	warned string    // object of the warning that holds; empty: none
}

// look notes a look at a slot that is there. It returns a warning when the oldest
// transaction has been open for longer than patience, and again when that one is prepared;
// and says when what was warned of is over.
func (o *oldest) look(c *State, patience time.Duration) []Warning {
	var warnings []Warning
	t := c.Oldest
	if t == nil || t.XID != o.xid {
		if o.warned != "" {
			warnings = append(warnings, Warning{Object: o.warned, Over: true, Text: "it has ended; log is not kept for it any longer"})
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
		"it has been open for %s (%s): until it ends, slot %q holds the log from %s on, %s by now, which is read again after every reconnect; %s",
		open.Round(max(time.Second, open/100)), t.describe(), c.SlotName, c.Slot.RestartLSN, size(c.Slot.retained(c.WALEnd)), t.Remedy())})
}

// open is how long the oldest transaction has been known to be open.
func (o *oldest) open(c *State) time.Duration { return max(c.Oldest.Age, c.ReadAt.Sub(o.since)) }
