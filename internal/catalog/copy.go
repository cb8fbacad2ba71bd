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

// A Copy reads the rows that a publication's tables had at one moment, as the stream would
// print them. It holds a transaction open, and with it what VACUUM could remove. It belongs
// to one goroutine at a time and must be closed.
type Copy struct {
	// Point divides the log: what was committed before it is in the Copy if it has not been
	// deleted since, what was committed later is not.
	Point  pglogrepl.LSN
	Tables []Table // of the publication

	conn     *pgconn.PgConn
	maxBytes int
}

// SetupCopy does what Setup does. If it has created the slot it also returns the Copy of
// the rows that the slot does not deliver: each row is in the one or in the other.
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

// OpenCopy returns a Copy of the rows that the publication's tables have now, for a slot that
// exists already: rows committed since the slot was made are in both. It makes a temporary
// slot for a moment, and waits as that does for every transaction in progress: a plain look
// at the tables may lack a transaction that is in the log before the slot.
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

// openCopy opens the Copy of a new slot's snapshot.
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

// openSnapshot starts the transaction in the snapshot, and reads what there is to copy.
func (c *Copy) openSnapshot(ctx context.Context, publication, snapshot string) error {
	if err := beginReading(ctx, c.conn); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, "SET TRANSACTION SNAPSHOT "+replication.QuoteLiteral(snapshot)).ReadAll(); err != nil {
		return replication.QueryError(ctx, "take over the snapshot", err)
	}
	server, err := readServer(ctx, c.conn)
	if err != nil {
		return err
	}
	c.Tables, err = readTables(ctx, c.conn, server.ServerVersion, publication)
	return err
}

// Rows calls fn with each row of a table of Tables, in the order in which they lie there: the
// texts of the table's Columns, nil for NULL, valid until fn returns. It needs SELECT on the
// table and memory for one row. A row beyond [replication.Config.MaxMessageBytes] ends it with ErrRow; an
// error of fn ends it and is returned. After an error the Copy can only be closed.
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

// wrapRows is wrap for the reading of rows that may have maxBytes each.
func wrapRows(ctx context.Context, doing string, err error, maxBytes int) error {
	if large, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return fmt.Errorf("%w: %s: a row has %d bytes and exceeds the limit of %d bytes", replication.ErrRow, doing, large.ActualBodyLen, maxBytes)
	}
	return replication.QueryError(ctx, doing, err)
}

// selectAll reads what is published of t.
func (t Table) selectAll() string {
	sql := "SELECT " + columnList(t.Columns) + " FROM " + t.from()
	if t.RowFilter != "" {
		sql += " WHERE " + t.RowFilter
	}
	return sql
}

// from names t in a statement. The rows of a table that inherits from another are not the other's;
// those of a partition are the root's.
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

// Close ends the transaction and closes the connection, also after ctx has ended.
func (c *Copy) Close(ctx context.Context) { replication.Disconnect(ctx, c.conn) }
