package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// plugin is the output plugin of the relay's slots.
const plugin = "pgoutput"

// SetupConfig configures Setup and Drop.
type SetupConfig struct {
	Conn              *pgconn.Config // as replication.Config.Conn
	Publication, Slot string

	// Tables are the tables to publish, written as in SQL: schema.table, "Quoted", or a name that is
	// found in the role's search_path. Drop ignores them.
	Tables []string

	// Messages says that rows are logical messages, see [replication.Config.Messages]. Tables may then
	// be empty, and the publication may have no table.
	Messages bool

	// Updates makes a new publication publish UPDATEs too. Postgres then rejects an UPDATE of a table
	// that has neither a primary key nor another replica identity.
	Updates bool

	// Failover makes Setup create a failover slot, which standbys synchronize, from Postgres 17 on.
	Failover bool

	// PublicationOnly makes Setup leave out a slot that does not exist: the first start of the relay creates it, with a copy of the tables.
	PublicationOnly bool

	// Operator is a role to grant what the commands of an operator need on Tables. Empty: none.
	Operator string

	// Copy selects the rows that [SlotLock.SetupCopy] and [OpenCopy] copy.
	Copy CopyFilter

	// Sessions, unless nil, are those of the last setup. The next one ends what is left of them.
	Sessions *Sessions

	// lockTimeout limits each wait for other transactions. Zero means [patience].
	lockTimeout time.Duration
}

// A Step is the result of Setup or Drop for one object.
type Step struct {
	Object string        // for example: publication "outbox_cdc"
	Action string        // exists, created, dropped, kept, granted, missing or left out
	LSN    pglogrepl.LSN // for a slot: its confirmed position; 0 if there is none

	Warning string // how the object differs from SetupConfig; empty: it does not
}

// NewSlot reports whether the step has created a slot.
func (s Step) NewSlot() bool { return s.Action == actionCreated && s.LSN != 0 }

// LeftOut reports whether the step has left a slot to the first start of the relay.
func (s Step) LeftOut() bool { return s.Action == actionLeftOut }

// Setup creates the publication and the slot if they do not exist. The tables must exist. Setup is
// idempotent. It creates the publication first, because a slot does not deliver rows from before the
// publication existed. Creating the slot waits for every transaction in progress; if one does not end
// within lockTimeout, the error names it. If Setup fails, it drops what it has created.
//
// Setup returns an error instead of losing rows: if the slot exists without the publication, if an
// existing publication does not publish the inserts of all rows of all tables, or if Verify rejects the
// slot. If another session holds the advisory lock of Setup for lockTimeout, the error is an
// [*advisory.HeldError].
//
// For the slot, the role needs REPLICATION. For the publication, it needs CREATE on the database and
// must own the tables; for Operator, it must own them.
func Setup(ctx context.Context, cfg SetupConfig) ([]Step, error) {
	s, err := newSetup(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	return s.run(ctx)
}

func (s *setup) run(ctx context.Context) ([]Step, error) {
	if len(s.cfg.Tables) == 0 && !s.cfg.Messages {
		return nil, fmt.Errorf("%w: there is no table to publish", replication.ErrConfig)
	}
	state, err := s.inspect(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case state.Slot != nil:
		err = state.Verify() // also rejects a slot without publication
	case state.Publication != nil:
		err = cmp.Or(state.verifyPublication(), state.VerifyOutboxes())
	default:
		err = state.verifyTables()
	}
	if err != nil {
		return nil, err
	}
	var granted []Step
	if s.cfg.Operator != "" {
		if granted, err = s.grantOperator(ctx, state.Outboxes); err != nil {
			return nil, err
		}
	}
	steps, err := s.create(ctx, state)
	if err != nil {
		return nil, err
	}
	return append(steps, granted...), nil
}

// create creates the missing objects. Before that it makes sure that a Copy could read the tables.
func (s *setup) create(ctx context.Context, state *State) ([]Step, error) {
	if s.export && state.Slot == nil {
		tables := make([]Table, len(state.Outboxes))
		for i := range state.Outboxes {
			tables[i] = state.Outboxes[i].table().asTable()
		}
		if err := cmp.Or(verifyRead(ctx, s.conn, tables), VerifyRows(ctx, s.conn, tableOIDs(tables)...)); err != nil {
			return nil, err
		}
		for i := range tables {
			if err := s.cfg.Copy.verify(ctx, s.conn, tables[i].SQLName()); err != nil {
				return nil, err
			}
		}
	}
	var former []string
	if !s.export && !s.cfg.PublicationOnly && state.Slot == nil {
		var err error
		if former, err = s.otherUsers(ctx, "NOT s.active AND s.wal_status <> 'lost'"); err != nil {
			return nil, err
		}
	}
	publication := Step{Object: fmt.Sprintf("publication %q", s.cfg.Publication), Action: actionExists, Warning: state.FilterWarning()}
	if state.Publication == nil {
		if err := s.createPublication(ctx, state.Outboxes); err != nil {
			return nil, err
		}
		publication.Action = actionCreated
	}
	slot := Step{Object: fmt.Sprintf("slot %q", s.cfg.Slot), Action: actionExists}
	if state.Slot != nil {
		slot.LSN = state.Slot.ConfirmedFlushLSN
		slot.Warning = s.failoverWarning(state)
		return []Step{publication, slot}, nil
	}
	if s.cfg.PublicationOnly {
		slot.Action = actionLeftOut
		slot.Warning = "source.initial_copy is set: the first start of the relay creates the slot, and sends the rows from before it. To create it now, without them: --set source.initial_copy=false"
		return []Step{publication, slot}, nil
	}
	made, err := s.createSlot(ctx, replication.Walsender(s.cfg.Conn), s.cfg.Slot, s.slotCommand(state.ServerVersion))
	if err != nil {
		if publication.Action == actionCreated {
			err = errors.Join(err, s.undo(ctx))
		}
		return nil, err
	}
	s.made = made
	slot.Action, slot.LSN = actionCreated, made.point
	slot.Warning = cmp.Or(standbyWarning(state), formerWarning(former), s.failoverWarning(state)) // the next setup repeats the last one
	return []Step{publication, slot}, nil
}

// standbyWarning says what a relay of a standby server needs.
func standbyWarning(state *State) string {
	if !state.InRecovery {
		return ""
	}
	return "this server is a standby. Beside a relay of its primary, give the one of this server another name, or rather let source.dsn lead to the primary"
}

// formerWarning says what a new slot does not deliver if it takes the place of one of others, which no relay uses.
func formerWarning(others []string) string {
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("it delivers only what is committed from now on. If it takes the place of a slot that no relay uses now (%s), rows that the former one has not "+
		"delivered are missing: deliver them first, with source.slot set to its name (docs/operations.md#change-the-slot)", strings.Join(others, ", "))
}

// FilterWarning names the outbox tables whose rows the publication filters, "" if there is none.
func (c *State) FilterWarning() string {
	var filters []string
	for _, t := range c.Carriers() {
		if t.RowFilter != "" {
			filters = append(filters, fmt.Sprintf("%s %s", t.SQLName(), t.RowFilter))
		}
	}
	if filters == nil {
		return ""
	}
	return "it has a row filter, and rows that do not match it are not delivered: " + strings.Join(filters, ", ")
}

// failoverSince is the first version with failover slots.
const failoverSince = 170000

// failoverWarning returns why the slot is not a failover slot although the configuration asks for one. It
// returns "" if it is one.
func (s *setup) failoverWarning(state *State) string {
	switch {
	case !s.cfg.Failover:
		return ""
	case state.ServerVersion < failoverSince:
		return fmt.Sprintf("it is not a failover slot, which needs PostgreSQL 17, and the server is %d; after a failover the slot does not exist", state.ServerVersion/10000)
	case state.Slot != nil && !state.Slot.Failover:
		return fmt.Sprintf(`it was not created as a failover slot; stop the relay and run, over a connection with replication=database: ALTER_REPLICATION_SLOT %s (FAILOVER true)`,
			replication.QuoteIdent(s.cfg.Slot))
	}
	return ""
}

// Actions of a Step.
const (
	actionExists  = "exists"
	actionCreated = "created"
	actionDropped = "dropped"
	actionKept    = "kept"
	actionGranted = "granted"
	actionMissing = "missing"
	actionLeftOut = "left out"
)

// A setup is a run of Setup or Drop. Its connection holds an advisory lock, so that runs for one slot
// do not overlap.
type setup struct {
	cfg     SetupConfig // its Conn connects to the server of conn only
	conn    *pgconn.PgConn
	export  bool     // create the slot with an exported snapshot
	waiting Waiting  // nil: creating a slot fails after lockTimeout
	made    *newSlot // the slot that this run has created; nil: none
}

func newSetup(ctx context.Context, cfg SetupConfig) (*setup, error) {
	cfg.lockTimeout = cmp.Or(cfg.lockTimeout, patience(ctx))
	if err := replication.CheckNames(cfg.Publication, cfg.Slot); err != nil {
		return nil, err
	}
	settings := replication.Ordinary(cfg.Conn)
	settings.RuntimeParams[lockTimeout] = millis(cfg.lockTimeout)
	maps.Copy(settings.RuntimeParams, keepalives())
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	cfg.Conn = replication.SameServer(cfg.Conn, conn.Conn().RemoteAddr())
	s := &setup{cfg: cfg, conn: conn}
	if err := s.lock(ctx); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// keepalives returns the startup parameters with which Postgres ends a session 25 s after its client's machine or the network
// has failed, and so releases the advisory lock. By default that takes two hours.
func keepalives() map[string]string {
	return map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
}

// patience returns how long to wait for other transactions: 20 s, or less if ctx ends before, so that there is time to find
// out which transactions they are.
func patience(ctx context.Context) time.Duration {
	longest := 20 * time.Second
	if end, ok := ctx.Deadline(); ok {
		longest = min(longest, (time.Until(end) * 2 / 3).Round(100*time.Millisecond))
	}
	return max(longest, 100*time.Millisecond)
}

// lock takes the advisory lock, after it has ended what is left of cfg.Sessions. It waits at most lockTimeout.
func (s *setup) lock(ctx context.Context) error {
	key := "pg_catalog.hashtextextended(" + replication.QuoteLiteral("outbox-cdc setup "+s.cfg.Slot) + ", 0)"
	if err := s.cfg.Sessions.end(ctx, s.conn, key); err != nil {
		return err
	}
	s.cfg.Sessions.add(s.conn)
	err := s.exec(ctx, "wait for another setup of the same slot", "SELECT pg_catalog.pg_advisory_lock("+key+")")
	if !errors.Is(err, replication.ErrBusy) {
		return err
	}
	holders, errHolders := queryOne(ctx, s.conn, pgx.RowTo[string], "find out who holds the lock", advisory.Holders(key, advisory.OneKey))
	if errHolders != nil {
		return errors.Join(err, errHolders)
	}
	return &advisory.HeldError{What: fmt.Sprintf("set up slot %q: waited for %s", s.cfg.Slot, s.cfg.lockTimeout), Holders: *holders, Err: err}
}

const lockTimeout = "lock_timeout"

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// cleanupTimeout limits the cleanup, which runs even if ctx has ended.
const cleanupTimeout = 5 * time.Second

func (s *setup) close(ctx context.Context) {
	if s.made != nil {
		replication.Disconnect(ctx, s.made.conn)
	}
	replication.Disconnect(ctx, s.conn)
}

func (s *setup) exec(ctx context.Context, doing, sql string) error {
	return execute(ctx, s.conn, doing, sql)
}

func (s *setup) inspect(ctx context.Context) (*State, error) {
	state, err := inspect(ctx, s.conn, s.cfg.Publication, s.cfg.Slot, NewTables(s.cfg.Tables))
	if err != nil {
		return nil, err
	}
	state.Messages = s.cfg.Messages
	return state, state.verifyServer()
}

// createPublication runs in its own transaction, because creating the slot would wait for it.
func (s *setup) createPublication(ctx context.Context, outboxes []Outbox) error {
	var names []string
	for _, o := range outboxes {
		names = append(names, o.table().SQLName())
	}
	of := ""
	if len(names) > 0 {
		of = " FOR TABLE " + strings.Join(names, ", ")
	}
	doing := fmt.Sprintf("create publication %q", s.cfg.Publication)
	publish := "insert"
	if s.cfg.Updates {
		publish = "insert, update"
	}
	err := s.exec(ctx, doing, fmt.Sprintf("CREATE PUBLICATION %s%s WITH (publish = '%s', publish_via_partition_root = true)",
		replication.QuoteIdent(s.cfg.Publication), of, publish))
	return blocked(ctx, s.conn, err, "a lock on a table", tableHolders(outboxes))
}

// A newSlot is a slot that was just created, with its replication connection.
type newSlot struct {
	conn     *pgconn.PgConn
	point    pglogrepl.LSN // the consistent point, from which the slot delivers
	snapshot string        // exported snapshot as of point, valid until conn is used or closed; empty: none
}

// createSlot runs command, which creates a slot, over a new connection with settings. If ctx is canceled,
// it cancels the command on the server; closing the connection alone would leave an unfinished slot.
func (s *setup) createSlot(ctx context.Context, settings *pgconn.Config, name, command string) (*newSlot, error) {
	settings.RuntimeParams[lockTimeout] = millis(s.cfg.lockTimeout)
	if s.waiting != nil {
		settings.RuntimeParams[lockTimeout] = "0"
	}
	settings.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cleanupTimeout}
	}
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	s.cfg.Sessions.add(conn)
	doing := fmt.Sprintf("create slot %q", name)
	var result pglogrepl.CreateReplicationSlotResult
	err = s.whileCreating(ctx, doing, conn.PID(), func(ctx context.Context) (err error) {
		result, err = pglogrepl.ParseCreateReplicationSlot(conn.Exec(ctx, command))
		return replication.QueryError(ctx, doing, err)
	})
	err = blocked(ctx, s.conn, err, olderTransactions, transactionHolders)
	var point pglogrepl.LSN
	if err == nil {
		point, err = pglogrepl.ParseLSN(result.ConsistentPoint)
	}
	if err != nil {
		replication.Disconnect(ctx, conn)
		return nil, err
	}
	return &newSlot{conn: conn, point: point, snapshot: result.SnapshotName}, nil
}

// slotCommand returns the command that creates the relay's slot.
func (s *setup) slotCommand(version int) string {
	slot := fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL %s", replication.QuoteIdent(s.cfg.Slot), plugin)
	if s.cfg.Failover && version >= failoverSince {
		snapshot := "nothing"
		if s.export {
			snapshot = "export"
		}
		return slot + " (SNAPSHOT '" + snapshot + "', FAILOVER true)"
	}
	if s.export {
		return slot + " EXPORT_SNAPSHOT"
	}
	return slot + " NOEXPORT_SNAPSHOT"
}

// undo drops the publication that this run has created.
func (s *setup) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return s.dropPublication(ctx)
}

func (s *setup) dropPublication(ctx context.Context) error {
	return s.exec(ctx, fmt.Sprintf("drop publication %q", s.cfg.Publication), "DROP PUBLICATION "+replication.QuoteIdent(s.cfg.Publication))
}
