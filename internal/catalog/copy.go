package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pglogrepl"
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
	Tables []Table // of the publication

	conn     *pgconn.PgConn
	maxBytes int
}

// SetupCopy is Setup. If it creates the slot, it also returns a Copy of the rows that the slot does
// not deliver: each row is either in the Copy or in the stream of the slot.
func SetupCopy(ctx context.Context, cfg replication.Config, setup SetupConfig) ([]Step, *Copy, error) {
	s, err := newSetup(ctx, setup)
	if err != nil {
		return nil, nil, err
	}
	defer s.close(ctx)
	s.export = true
	steps, err := s.run(ctx)
	if err != nil || s.made == nil {
		return steps, nil, err
	}
	c, err := s.openCopy(ctx, cfg, s.made)
	return steps, c, err
}

// OpenCopy returns a Copy of the current rows of the publication's tables, for a slot that already
// exists. Rows committed since the slot was created are in the Copy and in the stream. OpenCopy
// creates a temporary slot for its snapshot, and so waits for every transaction in progress. A
// snapshot without a slot could miss a transaction whose commit record is before the slot's position.
func OpenCopy(ctx context.Context, cfg replication.Config) (*Copy, error) {
	s, err := newSetup(ctx, SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot})
	if err != nil {
		return nil, err
	}
	defer s.close(ctx)
	name := fmt.Sprintf("outbox_cdc_copy_%08x", rand.Uint32())
	made, err := s.createSlot(ctx, replication.Walsender(s.cfg.Conn), name, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL %s EXPORT_SNAPSHOT", name, plugin))
	if err != nil {
		return nil, err
	}
	s.made = made
	return s.openCopy(ctx, cfg, made)
}

// openCopy opens a Copy with the snapshot of a new slot.
func (s *setup) openCopy(ctx context.Context, cfg replication.Config, slot *newSlot) (*Copy, error) {
	cfg = cfg.WithDefaults()
	conn, err := replication.Connect(ctx, lasting(cfg.Conn, "copy"))
	if err != nil {
		return nil, err
	}
	c := &Copy{Point: slot.point, conn: conn, maxBytes: cfg.MaxMessageBytes}
	if err := c.openSnapshot(ctx, cfg.Publication, slot.snapshot); err != nil {
		c.Close(ctx)
		return nil, err
	}
	conn.Frontend().SetMaxBodyLen(c.maxBytes)
	return c, nil
}

// openSnapshot starts a transaction with the snapshot, and reads the tables of the publication.
func (c *Copy) openSnapshot(ctx context.Context, publication, snapshot string) error {
	if err := beginReading(ctx, c.conn); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, "SET TRANSACTION SNAPSHOT "+replication.QuoteLiteral(snapshot)).ReadAll(); err != nil {
		return replication.QueryError(ctx, "import the snapshot", err)
	}
	server, err := readServer(ctx, c.conn)
	if err != nil {
		return err
	}
	c.Tables, err = readTables(ctx, c.conn, server.ServerVersion, publication)
	return err
}

// Rows calls fn with each row of a table of Tables, in physical order. values has the text of each of
// the table's Columns, nil for NULL, and is valid until fn returns. Rows needs SELECT on the table, and
// memory for one row. It returns the error of fn, or an error that wraps ErrRow for a row larger than
// [replication.Config.MaxMessageBytes]. After an error the Copy can only be closed.
func (c *Copy) Rows(ctx context.Context, t *Table, fn func(values [][]byte) error) error {
	doing := fmt.Sprintf("copy table %s.%s", t.Schema, t.Name)
	results := c.conn.Exec(ctx, t.selectAll())
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			if err := fn(rows.Values()); err != nil {
				return err
			}
		}
	}
	return wrapRows(ctx, doing, results.Close(), c.maxBytes)
}

// wrapRows is QueryError for a statement that reads rows of at most maxBytes each.
func wrapRows(ctx context.Context, doing string, err error, maxBytes int) error {
	if large, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return fmt.Errorf("%w: %s: a row has %d bytes and exceeds the limit of %d bytes", replication.ErrRow, doing, large.ActualBodyLen, maxBytes)
	}
	return replication.QueryError(ctx, doing, err)
}

// selectAll returns the statement that reads the published columns and rows of t.
func (t Table) selectAll() string {
	sql := "SELECT " + columnList(t.Columns) + " FROM " + t.from()
	if t.RowFilter != "" {
		sql += " WHERE " + t.RowFilter
	}
	return sql
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

func columnList(columns []Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = replication.QuoteIdent(c.Name)
	}
	return strings.Join(names, ", ")
}

// Close ends the transaction and closes the connection, even if ctx has ended.
func (c *Copy) Close(ctx context.Context) { replication.Disconnect(ctx, c.conn) }
