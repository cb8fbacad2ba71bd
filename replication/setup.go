package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// plugin is the output plugin of our slots.
const plugin = "pgoutput"

// SetupConfig says what Setup creates and Drop drops.
type SetupConfig struct {
	Conn              *pgconn.Config // as Config.Conn
	Publication, Slot string

	// Tables are the tables to publish, written as in SQL: schema.table, "Quoted", or only a
	// name to be found in the role's search_path. Drop does not look at them.
	Tables []string

	// LockTimeout bounds each wait for other transactions. Zero means 10 s.
	LockTimeout time.Duration
}

// A Step is what was found or done about one object.
type Step struct {
	Object string        // publication "outbox_cdc"
	Action string        // exists, created, dropped, missing
	LSN    pglogrepl.LSN // of a slot: its confirmed position; 0 if there is none
}

// Setup makes sure that publication and slot exist over the tables, which it does not
// create. It is idempotent. It creates the publication first: what a slot decodes from
// before the publication existed is not delivered, and creating the slot waits for every
// transaction in progress. If a transaction does not end within LockTimeout the error
// names it. When Setup fails, nothing it has created is left.
//
// It refuses what would lose rows: a slot without its publication, a publication that
// exists and does not publish inserts of all rows of all tables, and a slot that Verify
// refuses.
//
// The role needs REPLICATION for the slot; for the publication, CREATE on the database and
// ownership of the tables.
func Setup(ctx context.Context, cfg SetupConfig) ([]Step, error) {
	cfg.LockTimeout = cmp.Or(cfg.LockTimeout, 10*time.Second)
	if len(cfg.Tables) == 0 {
		return nil, fmt.Errorf("%w: no table to publish is named", ErrConfig)
	}
	s, err := newSetup(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	catalog, err := s.catalog(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := s.tables(ctx)
	if err != nil {
		return nil, err
	}
	if catalog.Slot != nil {
		err = catalog.Verify() // a slot without publication is refused there
	}
	if catalog.Publication != nil && err == nil {
		err = errors.Join(catalog.verifyPublication(), catalog.Publication.covers(tables))
	}
	if err != nil {
		return nil, err
	}
	return s.create(ctx, catalog, tables)
}

// create makes what the catalog does not have.
func (s *setup) create(ctx context.Context, catalog *Catalog, tables []tableRef) ([]Step, error) {
	publication := Step{Object: fmt.Sprintf("publication %q", s.cfg.Publication), Action: actionExists}
	if catalog.Publication == nil {
		if err := s.createPublication(ctx, tables); err != nil {
			return nil, err
		}
		publication.Action = actionCreated
	}
	slot := Step{Object: fmt.Sprintf("slot %q", s.cfg.Slot), Action: actionExists}
	if catalog.Slot != nil {
		slot.LSN = catalog.Slot.ConfirmedFlushLSN
		return []Step{publication, slot}, nil
	}
	var err error
	if slot.LSN, err = s.createSlot(ctx); err != nil {
		if publication.Action == actionCreated {
			err = errors.Join(err, s.undo(ctx))
		}
		return nil, err
	}
	slot.Action = actionCreated
	return []Step{publication, slot}, nil
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
	cfg  SetupConfig
	conn *pgconn.PgConn
}

func newSetup(ctx context.Context, cfg SetupConfig) (*setup, error) {
	if err := checkNames(cfg.Publication, cfg.Slot); err != nil {
		return nil, err
	}
	settings := ordinary(cfg.Conn)
	settings.RuntimeParams[lockTimeout] = millis(cfg.LockTimeout)
	conn, err := connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	s := &setup{cfg: cfg, conn: conn}
	err = s.exec(ctx, "wait for another setup of the same slot",
		"SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended("+quoteLiteral("outbox-cdc setup "+cfg.Slot)+", 0))")
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

const lockTimeout = "lock_timeout"

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// afterwards bounds what has to be done although ctx may have ended.
const afterwards = 5 * time.Second

func (s *setup) close(ctx context.Context) { closeConn(ctx, s.conn) }

func closeConn(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	_ = conn.Close(ctx)
}

func (s *setup) exec(ctx context.Context, doing, sql string) error {
	_, err := s.conn.Exec(ctx, sql).ReadAll()
	return wrap(ctx, doing, err, querying)
}

func (s *setup) catalog(ctx context.Context) (*Catalog, error) {
	catalog, err := inspect(ctx, s.conn, s.cfg.Publication, s.cfg.Slot)
	if err != nil {
		return nil, err
	}
	return catalog, catalog.verifyServer()
}

// createPublication is a transaction of its own: the slot's creation would wait for it.
func (s *setup) createPublication(ctx context.Context, tables []tableRef) error {
	var names []string
	for _, t := range tables {
		names = append(names, quoteIdent(t.schema)+"."+quoteIdent(t.name))
	}
	doing := fmt.Sprintf("create publication %q", s.cfg.Publication)
	err := s.exec(ctx, doing, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		quoteIdent(s.cfg.Publication), strings.Join(names, ", ")))
	if sqlState(err) == lockNotAvailable {
		return s.blocked(ctx, err, tableHolders(tables))
	}
	return err
}

// createSlot returns the position from which the slot delivers. A canceled ctx cancels the
// command: only closing the connection would leave a slot that is not finished.
func (s *setup) createSlot(ctx context.Context) (pglogrepl.LSN, error) {
	settings := walsender(s.cfg.Conn)
	settings.RuntimeParams[lockTimeout] = millis(s.cfg.LockTimeout)
	settings.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: afterwards}
	}
	conn, err := connect(ctx, settings)
	if err != nil {
		return 0, err
	}
	defer closeConn(ctx, conn)
	doing := fmt.Sprintf("create slot %q", s.cfg.Slot)
	result, err := pglogrepl.ParseCreateReplicationSlot(conn.Exec(ctx,
		fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL %s NOEXPORT_SNAPSHOT", quoteIdent(s.cfg.Slot), plugin)))
	if err := wrap(ctx, doing, err, querying); sqlState(err) == lockNotAvailable {
		return 0, s.blocked(ctx, err, transactionHolders)
	} else if err != nil {
		return 0, err
	}
	return pglogrepl.ParseLSN(result.ConsistentPoint)
}

// undo drops the publication that this run has created.
func (s *setup) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	return s.dropPublication(ctx)
}

func (s *setup) dropPublication(ctx context.Context) error {
	return s.exec(ctx, fmt.Sprintf("drop publication %q", s.cfg.Publication), "DROP PUBLICATION "+quoteIdent(s.cfg.Publication))
}
