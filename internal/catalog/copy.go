package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Copy reads the rows of a publication's tables as of one snapshot, in the same text format as the
// stream. It keeps a transaction open, so VACUUM cannot remove dead rows. One goroutine at a time
// uses it, and the caller must close it.
type Copy struct {
	// Point is the position of the snapshot in the WAL. The Copy has the rows that were committed
	// before Point and not deleted before it. Rows committed later are not in the Copy.
	Point  pglogrepl.LSN
	Tables []Table // published tables that have rows of outbox tables

	// Snapshot is pg_current_snapshot() of the Copy.
	Snapshot string

	conn        *pgconn.PgConn
	publication string
	missing     *Missing // nil: all rows that filter selects
	filter      CopyFilter
	maxBytes    int
}

// OpenCopy returns a Copy of the current rows of the outbox tables that cfg.Copy selects, or of the missing ones, for a
// slot that already exists. Unless missing.Until excludes them, rows committed since the slot was created
// are in the Copy and in the stream. OpenCopy creates a temporary slot for its snapshot, and so waits for
// every transaction in progress, see waiting. A snapshot without a slot could miss a transaction whose commit record is
// before the slot's position.
func OpenCopy(ctx context.Context, cfg SetupConfig, source replication.Config, missing *Missing, waiting Waiting) (*Copy, error) {
	s, err := newSetup(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	s.waiting = waiting
	name := fmt.Sprintf("outbox_cdc_copy_%08x", rand.Uint32())
	made, err := s.createSlot(ctx, replication.Walsender(s.cfg.Conn), name, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL %s EXPORT_SNAPSHOT", name, plugin))
	if err != nil {
		return nil, err
	}
	s.made = made
	return s.openCopy(ctx, source, made, missing)
}

// openCopy opens a Copy with the snapshot of a new slot.
func (s *setup) openCopy(ctx context.Context, cfg replication.Config, slot *newSlot, missing *Missing) (*Copy, error) {
	c, err := newCopy(ctx, cfg, missing)
	if err != nil {
		return nil, err
	}
	c.Point, c.filter = slot.point, s.cfg.Copy
	if err := c.begin(ctx, cfg.Publication, s.cfg.Tables, slot.snapshot); err != nil {
		c.Close(ctx)
		return nil, err
	}
	return c, nil
}

// newCopy connects to the server. The Copy is not usable before begin.
func newCopy(ctx context.Context, cfg replication.Config, missing *Missing) (*Copy, error) {
	cfg = cfg.WithDefaults()
	conn, err := replication.Connect(ctx, lasting(cfg.Conn, "copy"))
	if err != nil {
		return nil, err
	}
	return &Copy{conn: conn, publication: cfg.Publication, missing: missing, maxBytes: cfg.MaxMessageBytes}, nil
}

// currentSnapshot reads pg_current_snapshot(). If transactions rolled back while a slot was created, the xmax of
// the exported snapshot can be below its xmin (snapbuild.c advances xmax at commits only). Postgres does not accept
// that as a pg_snapshot, although it means the same as with xmax = xmin.
const currentSnapshot = `
	SELECT CASE WHEN pg_catalog.pg_snapshot_xmax(s) < pg_catalog.pg_snapshot_xmin(s)
		THEN pg_catalog.concat(pg_catalog.pg_snapshot_xmin(s), ':', pg_catalog.pg_snapshot_xmin(s), ':') ELSE s::text END
	FROM pg_catalog.pg_current_snapshot() AS s`

// begin starts a transaction, with the exported snapshot unless that is empty, and reads the tables that it copies.
func (c *Copy) begin(ctx context.Context, publication string, tables []string, exported string) error {
	if err := beginReading(ctx, c.conn); err != nil {
		return err
	}
	if exported != "" {
		err := execute(ctx, c.conn, "import the snapshot", "SET TRANSACTION SNAPSHOT "+replication.QuoteLiteral(exported))
		if code := sqlState(err); code == invalidParameterValue || code == undefinedObject { // until 16, and from 17 on
			err = fmt.Errorf("%w: the session that has exported the snapshot is lost: %w", replication.ErrUnreachable, err)
		}
		if err != nil {
			return err
		}
	}
	server, err := readServer(ctx, c.conn)
	if err != nil {
		return err
	}
	if server.Outboxes, err = NewTables(tables).read(ctx, c.conn, publication); err != nil { // in the role's search_path
		return err
	}
	if err := server.verifyTables(); err != nil {
		return err
	}
	if err := printNames(ctx, c.conn); err != nil { // before the row filters are read, so that these name schemas
		return err
	}
	snapshot, err := queryOne(ctx, c.conn, pgx.RowTo[string], "read the snapshot", currentSnapshot)
	if err != nil {
		return err
	}
	c.Snapshot = *snapshot
	published, err := readTables(ctx, c.conn, server.ServerVersion, publication, nil)
	if err != nil {
		return err
	}
	server.Publication = &Publication{Name: publication, Tables: published}
	c.Tables = server.Carriers()
	if c.missing != nil { // a renamed table before the one that replaces it: a key may have rows in both
		slices.SortFunc(c.Tables, func(a, b Table) int { return cmp.Compare(a.OID, b.OID) })
	}
	if err := cmp.Or(verifyRead(ctx, c.conn, c.Tables), VerifyRows(ctx, c.conn, tableOIDs(c.Tables)...)); err != nil {
		return err
	}
	for _, t := range c.Tables {
		if err := c.filter.verify(ctx, c.conn, t.SQLName()); err != nil {
			return err
		}
	}
	c.conn.Frontend().SetMaxBodyLen(c.maxBytes)
	return nil
}

// Rows calls fn with each row of a table of Tables, missing rows in insertion order, others in that of the [CopyFilter].
// values has the text of each of the table's Columns, nil for NULL, and is valid until fn returns.
// Rows needs SELECT on the table, and memory for one row. It returns the error of fn, or an error that wraps ErrRow for a row larger than [replication.Config.MaxMessageBytes]. After an error the Copy can only be closed.
func (c *Copy) Rows(ctx context.Context, t *Table, fn func(values [][]byte) error) error {
	return c.readRows(ctx, *t, c.selectRows(*t), fn)
}

func (c *Copy) readRows(ctx context.Context, t Table, sql string, fn func(values [][]byte) error) error {
	results := c.conn.Exec(ctx, sql)
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			if err := fn(rows.Values()); err != nil {
				return err
			}
		}
	}
	return wrapRows(ctx, c.doing(t), results.Close(), c.maxBytes)
}

func (c *Copy) doing(t Table) string { return fmt.Sprintf("copy table %s.%s", t.Schema, t.Name) }

// wrapRows is QueryError for a statement that reads rows of at most maxBytes each.
func wrapRows(ctx context.Context, doing string, err error, maxBytes int) error {
	if large, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return fmt.Errorf("%w: %s: a row has %d bytes and exceeds the limit of %d bytes", replication.ErrRow, doing, large.ActualBodyLen, maxBytes)
	}
	return replication.QueryError(ctx, doing, err)
}

// selectRows returns the statement that reads the rows that the Copy has of t, in their published columns.
func (c *Copy) selectRows(t Table) string {
	sql := "SELECT " + columnList(t.Columns) + " FROM " + t.from() + " WHERE " + c.condition(t)
	if c.missing != nil {
		return sql + orderBy(orderColumn)
	}
	return sql + c.filter.order(t)
}

// condition returns the condition for the rows that the Copy has of t.
func (c *Copy) condition(t Table) string {
	all := []string{"true"}
	switch {
	case c.missing != nil:
		all = c.missing.conditions()
	case c.filter.Where != "":
		all = []string{c.filter.condition()}
	}
	if t.RowFilter != "" {
		all = append(all, "("+t.RowFilter+")")
	}
	return strings.Join(all, " AND ")
}

// from returns t for a FROM clause. It excludes the rows of inheriting tables, but not those of
// partitions.
func (t Table) from() string {
	only := "ONLY "
	if t.Partitioned {
		only = ""
	}
	return only + t.SQLName()
}

func tableOIDs(tables []Table) []uint32 {
	oids := make([]uint32, len(tables))
	for i, t := range tables {
		oids[i] = t.OID
	}
	return oids
}

func columnList(columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = replication.QuoteIdent(c.Name)
	}
	return strings.Join(names, ", ")
}

// Check returns an error if the server does not respond before ctx ends. The Copy can then only be closed.
func (c *Copy) Check(ctx context.Context) error { return ping(ctx, c.conn) }

// Close ends the transaction and closes the connection, even if ctx has ended.
func (c *Copy) Close(ctx context.Context) { replication.Disconnect(ctx, c.conn) }
