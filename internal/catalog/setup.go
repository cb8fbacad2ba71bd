package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// plugin is the output plugin of our slots.
const plugin = "pgoutput"

// SetupConfig says what Setup creates and Drop drops.
type SetupConfig struct {
	Conn              *pgconn.Config // as replication.Config.Conn
	Publication, Slot string

	// Tables are the tables to publish, written as in SQL: schema.table, "Quoted", or only a
	// name to be found in the role's search_path. Drop does not look at them.
	Tables []string

	// Messages says that rows come as logical messages, see [replication.Config.Messages]: there need not
	// be a table, and the publication may be one of none.
	Messages bool

	// Updates has the publication, where it is created, send changed rows too. Postgres then
	// refuses an UPDATE of a table that has neither a primary key nor another replica identity.
	Updates bool

	// Failover has standbys keep a copy of the slot, from Postgres 17 on.
	Failover bool

	// lockTimeout bounds each wait for other transactions. Zero means 10 s.
	lockTimeout time.Duration
}

// A Step is what was found or done about one object.
type Step struct {
	Object string        // publication "outbox_cdc"
	Action string        // exists, created, dropped, missing
	LSN    pglogrepl.LSN // of a slot: its confirmed position; 0 if there is none

	Warning string // what was wanted and is not so; empty: nothing
}

// Setup makes sure that publication and slot exist over the tables, which it does not
// create. It is idempotent. It creates the publication first: what a slot decodes from
// before the publication existed is not delivered, and creating the slot waits for every
// transaction in progress. If a transaction does not end within lockTimeout the error
// names it. When Setup fails, nothing it has created is left.
//
// It refuses what would lose rows: a slot without its publication, a publication that
// exists and does not publish inserts of all rows of all tables, and a slot that Verify
// refuses. If another session holds the lock of setups of the slot for lockTimeout, the error is an
// [*advisory.HeldError].
//
// The role needs REPLICATION for the slot; for the publication, CREATE on the database and
// ownership of the tables.
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
		return nil, fmt.Errorf("%w: no table to publish is named", replication.ErrConfig)
	}
	state, err := s.inspect(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := s.tables(ctx)
	if err != nil {
		return nil, err
	}
	if state.Slot != nil {
		err = state.Verify() // a slot without publication is refused there
	}
	if state.Publication != nil && err == nil {
		err = errors.Join(state.verifyPublication(), state.Publication.covers(tables))
	}
	if err != nil {
		return nil, err
	}
	return s.create(ctx, state, tables)
}

// create makes what the catalog does not have.
func (s *setup) create(ctx context.Context, state *State, tables []tableRef) ([]Step, error) {
	publication := Step{Object: fmt.Sprintf("publication %q", s.cfg.Publication), Action: actionExists}
	if state.Publication == nil {
		if err := s.createPublication(ctx, tables); err != nil {
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
	made, err := s.createSlot(ctx, replication.Walsender(s.cfg.Conn), s.cfg.Slot, s.slotCommand(state.ServerVersion))
	if err != nil {
		if publication.Action == actionCreated {
			err = errors.Join(err, s.undo(ctx))
		}
		return nil, err
	}
	s.made = made
	slot.Action, slot.LSN = actionCreated, made.point
	slot.Warning = s.failoverWarning(state)
	return []Step{publication, slot}, nil
}

// failoverSince is the first version whose slots can have copies on standbys.
const failoverSince = 170000

// failoverWarning says why no standby keeps a copy of the slot although that is wanted.
func (s *setup) failoverWarning(state *State) string {
	switch {
	case !s.cfg.Failover:
		return ""
	case state.ServerVersion < failoverSince:
		return fmt.Sprintf("standbys keep no copy of it: that takes PostgreSQL 17, and the server is %d; after a failover the slot is gone", state.ServerVersion/10000)
	case state.Slot != nil && !state.Slot.Failover:
		return fmt.Sprintf(`standbys keep no copy of it: it was created without; while nobody streams from it, over a connection with replication=database: ALTER_REPLICATION_SLOT %s (FAILOVER true)`,
			replication.QuoteIdent(s.cfg.Slot))
	}
	return ""
}

// Actions of a Step.
const (
	actionExists  = "exists"
	actionCreated = "created"
	actionDropped = "dropped"
	actionMissing = "missing"
)

// A setup is a run of Setup or Drop. Its connection holds a lock, so that runs for one
// slot come one after the other.
type setup struct {
	cfg    SetupConfig
	conn   *pgconn.PgConn
	export bool     // the slot is made with a snapshot
	made   *newSlot // by create; nil: none
}

func newSetup(ctx context.Context, cfg SetupConfig) (*setup, error) {
	cfg.lockTimeout = cmp.Or(cfg.lockTimeout, 10*time.Second)
	if err := replication.CheckNames(cfg.Publication, cfg.Slot); err != nil {
		return nil, err
	}
	settings := replication.Ordinary(cfg.Conn)
	settings.RuntimeParams[lockTimeout] = millis(cfg.lockTimeout)
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	s := &setup{cfg: cfg, conn: conn}
	if err := s.lock(ctx); err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

// lock waits for its turn until lockTimeout.
func (s *setup) lock(ctx context.Context) error {
	key := "pg_catalog.hashtextextended(" + replication.QuoteLiteral("outbox-cdc setup "+s.cfg.Slot) + ", 0)"
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

// afterwards bounds what has to be done although ctx may have ended.
const afterwards = 5 * time.Second

func (s *setup) close(ctx context.Context) {
	if s.made != nil {
		replication.Disconnect(ctx, s.made.conn)
	}
	replication.Disconnect(ctx, s.conn)
}

func (s *setup) exec(ctx context.Context, doing, sql string) error {
	_, err := s.conn.Exec(ctx, sql).ReadAll()
	return replication.QueryError(ctx, doing, err)
}

func (s *setup) inspect(ctx context.Context) (*State, error) {
	state, err := inspect(ctx, s.conn, s.cfg.Publication, s.cfg.Slot)
	if err != nil {
		return nil, err
	}
	state.Messages = s.cfg.Messages
	return state, state.verifyServer()
}

// createPublication is a transaction of its own: the slot's creation would wait for it.
func (s *setup) createPublication(ctx context.Context, tables []tableRef) error {
	var names []string
	for _, t := range tables {
		names = append(names, replication.QuoteIdent(t.schema)+"."+replication.QuoteIdent(t.name))
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
	if sqlState(err) == lockNotAvailable {
		return s.blocked(ctx, err, tableHolders(tables))
	}
	return err
}

// A newSlot is a slot that has just been made, over a connection in replication mode that
// is still open.
type newSlot struct {
	conn     *pgconn.PgConn
	point    pglogrepl.LSN // from which it delivers
	snapshot string        // of the moment before point, until the connection is used or closed; empty: none
}

// createSlot makes the slot that command asks for, over a connection of settings. A canceled ctx
// cancels the command: only closing the connection would leave a slot that is not finished.
func (s *setup) createSlot(ctx context.Context, settings *pgconn.Config, name, command string) (*newSlot, error) {
	settings.RuntimeParams[lockTimeout] = millis(s.cfg.lockTimeout)
	settings.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: afterwards}
	}
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	result, err := pglogrepl.ParseCreateReplicationSlot(conn.Exec(ctx, command))
	if err = replication.QueryError(ctx, fmt.Sprintf("create slot %q", name), err); sqlState(err) == lockNotAvailable {
		err = s.blocked(ctx, err, transactionHolders)
	}
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

// slotCommand makes the relay's slot.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	return s.dropPublication(ctx)
}

func (s *setup) dropPublication(ctx context.Context) error {
	return s.exec(ctx, fmt.Sprintf("drop publication %q", s.cfg.Publication), "DROP PUBLICATION "+replication.QuoteIdent(s.cfg.Publication))
}
