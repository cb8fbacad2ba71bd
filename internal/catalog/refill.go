package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// ErrRefill says that nothing shows which rows a lost slot had not delivered, or that some of them may have
// been deleted from the table.
var ErrRefill = errors.New("the gap cannot be refilled from the table")

// ErrPruned is the ErrRefill of a table without a delivered row: only the operator knows whether rows were deleted before they were
// delivered.
var ErrPruned = fmt.Errorf("%w", ErrRefill)

// ErrNoWitness is the ErrRefill of tables without the Witness: only the operator knows whether it was deleted, or whether this server is
// a copy from before it.
var ErrNoWitness = fmt.Errorf("%w", ErrRefill)

// ErrParts is the ErrRefill of a publication that sends the rows of each partition as the partition's: their order across partitions is
// not known.
var ErrParts = fmt.Errorf("%w", ErrRefill)

// Missing selects the rows that a lost slot had not delivered and that its successor does not deliver.
type Missing struct {
	Delivered string // the snapshot that sees the delivered transactions: xmin:xmax:xip_list
	Until     string // the snapshot that sees what was committed before the new slot; empty: all rows

	// Earlier are snapshots between both, the oldest first: see [Copy.Parts].
	Earlier []string

	// Witness is a delivered row. A server that lacks it is a copy from before the row, on which transaction ids of Delivered may have been used
	// a second time. Nil: no such row is known.
	Witness *Witness

	// Recorded is what [State.Published] returned when Delivered was taken. A table that was no outbox then needs no delivered row to prove
	// that its rows are all there. Empty: unknown.
	Recorded string

	Assume Assumptions
}

// A Witness is a row of one of the tables.
type Witness struct {
	XID  uint64 // of the transaction that inserted it
	Hash uint32 // of its content

	// Hasher returns what computes the hash of a row of t. values has the text of each of the table's Columns, nil for NULL.
	Hasher func(ctx context.Context, t *Table) (hash func(values [][]byte) (uint32, error), err error)
}

// Assumptions are statements of the operator that the server cannot prove. OpenMissing refuses those that the
// server disproves.
type Assumptions struct {
	Unpruned bool // no undelivered row was deleted from the tables
	Upgraded bool // the server was upgraded from that of Missing.Delivered by pg_upgrade, which keeps transaction ids
	Restored bool // the tables were restored from a dump of that server, and nothing has written to them since
}

// The columns that a table needs for a refill.
const (
	xidColumn   = "xid"      // of the transaction that wrote the row
	orderColumn = "position" // order of insertion
)

// OpenMissing returns a Copy of the rows that are missing now. Its error wraps ErrRefill unless the tables still
// have all of them. It creates no slot. So a transaction that commits meanwhile may be neither in the Copy nor in
// a slot that is created later: use OpenMissing to count.
func OpenMissing(ctx context.Context, cfg replication.Config, tables []string, missing Missing) (*Copy, error) {
	c, err := newCopy(ctx, cfg, &missing)
	if err != nil {
		return nil, err
	}
	if err = c.begin(ctx, cfg.Publication, tables, ""); err == nil {
		err = c.checkRefill(ctx)
	}
	if err == nil {
		err = c.checkAssumptions(ctx)
	}
	if err != nil {
		c.Close(ctx)
		return nil, err
	}
	return c, nil
}

// A SlotLock keeps every other refill and setup of a slot waiting. One goroutine at a time uses it.
type SlotLock struct{ setup *setup }

// LockSlot waits until no other SlotLock or setup of the slot is open. If one stays open for 20 s, or for two thirds of the
// time that ctx leaves, the error is an [*advisory.HeldError]. The caller must close the SlotLock.
func LockSlot(ctx context.Context, cfg SetupConfig) (*SlotLock, error) {
	s, err := newSetup(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &SlotLock{s}, nil
}

// Close ends the lock, even if ctx has ended.
func (l *SlotLock) Close(ctx context.Context) { l.setup.close(ctx) }

// Check returns an error if the lock is lost, because the server does not respond before ctx ends.
func (l *SlotLock) Check(ctx context.Context) error { return ping(ctx, l.setup.conn) }

// Conn returns settings for connections to the server that has the lock, even if those of LockSlot name several servers.
func (l *SlotLock) Conn() *pgconn.Config { return l.setup.cfg.Conn }

// Setup is the function [Setup], but waits for transactions in progress without a limit, see waiting.
func (l *SlotLock) Setup(ctx context.Context, waiting Waiting) ([]Step, error) {
	l.setup.waiting = waiting
	return l.setup.run(ctx)
}

// SetupCopy is Setup. If it creates the slot, it also returns a Copy of the rows that the slot does
// not deliver: each row is either in the Copy or in the stream of the slot.
func (l *SlotLock) SetupCopy(ctx context.Context, cfg replication.Config, waiting Waiting) ([]Step, *Copy, error) {
	s := l.setup
	s.export = true
	steps, err := l.Setup(ctx, waiting)
	if err != nil || s.made == nil {
		return steps, nil, err
	}
	c, err := s.openCopy(ctx, cfg, s.made, nil)
	return steps, c, err
}

// RecreateSlot drops the slot, if it exists, and creates it again. It returns a Copy of the missing rows:
// each is in the Copy or behind the position from which the new slot delivers. known is the slot as the
// caller knows it, nil if there is none. It waits for every transaction in progress, see waiting. The error wraps
// [replication.ErrSlotInUse] if somebody streams from the slot, and [replication.ErrBusy] if somebody has created it meanwhile.
func (l *SlotLock) RecreateSlot(ctx context.Context, cfg replication.Config, known *Slot, missing Missing, waiting Waiting) (*Copy, error) {
	s := l.setup
	state, err := s.inspect(ctx)
	if err == nil {
		err = cmp.Or(state.verifyPublication(), state.VerifyOutboxes())
	}
	if err == nil {
		err = VerifyRows(ctx, s.conn, tableOIDs(state.Publication.Tables)...)
	}
	if err != nil {
		return nil, err
	}
	if state.Slot != nil {
		if known == nil || known.ConfirmedFlushLSN != state.Slot.ConfirmedFlushLSN {
			return nil, fmt.Errorf("%w: another process has created slot %q at %s", replication.ErrBusy, state.Slot.Name, state.Slot.ConfirmedFlushLSN)
		}
		if err := s.dropSlot(ctx, state); err != nil {
			return nil, err
		}
		s.cfg.Failover = s.cfg.Failover || state.Slot.Failover
	}
	s.export, s.waiting = true, waiting
	made, err := s.createSlot(ctx, replication.Walsender(s.cfg.Conn), s.cfg.Slot, s.slotCommand(state.ServerVersion))
	if err != nil {
		return nil, err
	}
	s.made = made
	return s.openCopy(ctx, cfg, made, &missing)
}

// PublishViaRoot returns the SQL that makes a publication send the rows of partitions as those of their root.
func PublishViaRoot(publication string) string {
	return "ALTER PUBLICATION " + replication.QuoteIdent(publication) + " SET (publish_via_partition_root = true)"
}

// checkRefill returns an error that wraps ErrRefill unless every table still has all its missing rows, and their
// order.
func (c *Copy) checkRefill(ctx context.Context) error {
	was, recorded := parsePublished(c.missing.Recorded)
	for i := range c.Tables {
		t := &c.Tables[i]
		if t.partition && len(c.Tables) > 1 {
			return fmt.Errorf("%w: the publication sends the rows of partition %s as the partition's, so the order across partitions is not known; as its owner: %s",
				ErrParts, t.SQLName(), PublishViaRoot(c.publication))
		}
		alter, err := refillAlter(ctx, c.conn, *t)
		switch {
		case err != nil:
			return err
		case alter != "":
			return fmt.Errorf("%w: table %s has no columns with the transaction and the order of each row; for the next time: %s", ErrRefill, t.SQLName(), alter)
		}
		if c.missing.Assume.Unpruned || recorded && !t.partition && !was.has(t.OID) {
			continue
		}
		if whole, err := c.isWhole(ctx, *t); err != nil {
			return err
		} else if !whole {
			return fmt.Errorf("%w: table %s has no delivered row any more, so undelivered ones may have been deleted too; if you know that none was, for example because only prune deletes rows, and that this server was not restored from a backup: %s",
				ErrPruned, t.SQLName(), InstructUnpruned)
		}
	}
	return c.checkWitness(ctx)
}

// checkWitness returns an error that wraps ErrNoWitness if no table has the Witness.
func (c *Copy) checkWitness(ctx context.Context) error {
	w := c.missing.Witness
	if w == nil || c.missing.Assume.Unpruned {
		return nil
	}
	for i := range c.Tables {
		t := &c.Tables[i]
		sql := fmt.Sprintf("SELECT %s FROM %s WHERE %s = '%d'::pg_catalog.xid8", columnList(t.Columns), t.from(), xidColumn, w.XID)
		hashOf, err := w.Hasher(ctx, t)
		if err != nil {
			return err
		}
		found := false
		err = c.readRows(ctx, *t, sql, func(values [][]byte) error {
			hash, err := hashOf(values)
			found = found || hash == w.Hash
			return err
		})
		if found || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: no outbox table has the row that was delivered last, of transaction %d: somebody has deleted, changed or moved it, or this server was restored from a backup from before it; if you know that it was not restored, and that no undelivered row was deleted: %s",
		ErrNoWitness, w.XID, InstructUnpruned)
}

// Newest calls fn with the row that the last transaction has inserted of those that the Copy has of a table of Tables, and with the id of
// that transaction. A row that was restored from a dump does not count unless this server has used the id. Newest calls fn once, or never if
// there is no such row, if a refill cannot use the table, or if the role may read only some of its columns. values are those of [Copy.Rows].
func (c *Copy) Newest(ctx context.Context, t *Table, fn func(xid uint64, values [][]byte)) error {
	if alter, err := refillAlter(ctx, c.conn, *t); alter != "" || err != nil {
		return err
	}
	if readable, err := queryOne(ctx, c.conn, pgx.RowTo[bool], c.doing(*t), "SELECT pg_catalog.has_table_privilege($1::text::oid, 'SELECT')", fmt.Sprint(t.OID)); err != nil || !*readable {
		return err
	}
	// xmin is not before the id: it is later if the row was written in a subtransaction, or with the table since.
	end := strings.Split(c.Snapshot, ":")[1]
	sql := fmt.Sprintf("SELECT %[1]s::text, %[2]s FROM %[3]s WHERE %[4]s AND %[1]s < '%[6]s'::xid8 AND pg_catalog.age(xmin) <= pg_catalog.age(%[1]s::xid) ORDER BY %[5]s.%[1]s DESC LIMIT 1",
		xidColumn, columnList(t.Columns), t.from(), c.condition(*t), t.SQLName(), end)
	return c.readRows(ctx, *t, sql, func(values [][]byte) error {
		xid, err := strconv.ParseUint(string(values[0]), 10, 64)
		if err == nil {
			fn(xid, values[1:])
		}
		return err
	})
}

// checkAssumptions returns an error that wraps ErrRefill if the server disproves an assumption.
func (c *Copy) checkAssumptions(ctx context.Context) error {
	if c.missing.Assume.Upgraded {
		const later = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) >= pg_catalog.pg_snapshot_xmax($1::pg_catalog.pg_snapshot)"
		switch continues, err := queryOne(ctx, c.conn, pgx.RowTo[bool], "compare transaction ids", later, c.missing.Delivered); {
		case err != nil:
			return err
		case !*continues:
			return fmt.Errorf("%w: this server was not upgraded from the recorded one: its transaction ids are below those of the snapshot %s", ErrRefill, c.missing.Delivered)
		}
	}
	if !c.missing.Assume.Restored {
		return nil
	}
	for _, t := range c.Tables {
		// The xmin of a row that was written here is the id in its column xid, and all rows with that xmin have
		// the same xid. The rows that one COPY has restored have one xmin and different xids.
		written, err := queryOne(ctx, c.conn, pgx.RowTo[bool], c.doing(t), fmt.Sprintf(`SELECT EXISTS (SELECT FROM %s GROUP BY xmin::text
			HAVING pg_catalog.count(DISTINCT %s::text) = 1 AND pg_catalog.min(%[2]s::text::numeric) %% 4294967296 = xmin::text::numeric)`, t.from(), xidColumn))
		switch {
		case err != nil:
			return needSelect(c.conn, c.doing(t), t, err)
		case *written:
			return fmt.Errorf("%w: table %s has rows that were written after the dump was restored: the recorded server has used their transaction ids for other transactions",
				ErrRefill, t.SQLName())
		}
	}
	return nil
}

// isWhole reports whether the table still has all its missing rows, if old rows are deleted first: it has a
// delivered row, or the first row that was ever inserted, or no row was ever inserted.
func (c *Copy) isWhole(ctx context.Context, t Table) (bool, error) {
	sees := func(sql string, args ...string) (bool, error) {
		found, err := queryOne(ctx, c.conn, pgx.RowTo[bool], c.doing(t), sql, args...)
		if err != nil {
			return false, needSelect(c.conn, c.doing(t), t, err)
		}
		return *found, nil
	}
	if whole, err := sees(fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE pg_catalog.pg_visible_in_snapshot(%s, $1::pg_catalog.pg_snapshot))",
		t.from(), xidColumn), c.missing.Delivered); whole || err != nil {
		return whole, err
	}
	return sees(fmt.Sprintf(`
		SELECT COALESCE(CASE WHEN first IS NULL THEN pg_catalog.has_sequence_privilege(seqrelid, 'USAGE, SELECT') AND last IS NULL
			ELSE first = seqstart END, false)
		FROM (SELECT pg_catalog.min(%s) AS first FROM %s) rows
		LEFT JOIN (SELECT seqrelid, seqstart, CASE WHEN pg_catalog.has_sequence_privilege(seqrelid, 'USAGE, SELECT')
				THEN pg_catalog.pg_sequence_last_value(seqrelid) END AS last FROM pg_catalog.pg_sequence
			WHERE seqrelid = pg_catalog.pg_get_serial_sequence($1, $2)::regclass) sequence ON true`,
		orderColumn, t.from()), t.SQLName(), orderColumn)
}

// conditions returns what is true for the missing rows of a table.
func (m *Missing) conditions() []string {
	sees := func(snapshot string) string {
		return fmt.Sprintf("pg_catalog.pg_visible_in_snapshot(%s, %s::pg_catalog.pg_snapshot)", xidColumn, replication.QuoteLiteral(snapshot))
	}
	conditions := []string{"NOT " + sees(m.Delivered)}
	if m.Until != "" {
		conditions = append(conditions, sees(m.Until))
	}
	return conditions
}

// Parts returns the rows of c in parts, each with those that one more snapshot of Missing.Earlier sees. The rows of a part do
// not depend on later snapshots. The parts must not be used after c is closed.
func (c *Copy) Parts() []*Copy {
	if c.missing == nil {
		return []*Copy{c}
	}
	var parts []*Copy
	missing := *c.missing
	missing.Earlier = nil
	for _, until := range append(slices.Clone(c.missing.Earlier), c.missing.Until) {
		part, of := *c, missing
		of.Until = until
		part.missing = &of
		parts = append(parts, &part)
		missing.Delivered = until
	}
	return parts
}

// Count returns how many rows of a table of Tables the Copy has.
func (c *Copy) Count(ctx context.Context, t Table) (int64, error) {
	n, err := queryOne(ctx, c.conn, pgx.RowTo[int64], c.doing(t), "SELECT pg_catalog.count(*) FROM ("+c.selectRows(t)+") AS rows")
	if err != nil {
		return 0, needSelect(c.conn, c.doing(t), t, err)
	}
	return *n, nil
}

// refillAlter returns the statements that give a table the columns for a refill. It is empty if the table has
// them. For a partition they alter the root, because Postgres refuses most of this on a partition.
func refillAlter(ctx context.Context, conn executor, t Table) (string, error) {
	type column struct{ kind, null, byDefault string }
	columns := make(map[string]column)
	_, err := query(ctx, conn, func(row pgx.CollectableRow) (name string, err error) {
		var c column
		err = row.Scan(&name, &c.kind, &c.null, &c.byDefault)
		columns[name] = c
		return name, err
	}, "read the columns", `
		SELECT a.attname, pg_catalog.format_type(a.atttypid, NULL), CASE WHEN a.attnotnull THEN '' ELSE 'NULL' END,
			CASE WHEN a.attidentity <> '' THEN 'identity' ELSE COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') END
		FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = $1::text::oid AND a.attname = ANY (ARRAY[$2, $3]) AND NOT a.attisdropped`,
		fmt.Sprint(t.OID), xidColumn, orderColumn)
	if err != nil {
		return "", err
	}
	var renamed, actions []string
	xid, exists := columns[xidColumn]
	if exists && xid.kind != "xid8" {
		renamed, exists = append(renamed, xidColumn), false
	}
	switch {
	case !exists:
		actions = append(actions, "ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
	case xid.null != "" || strings.TrimPrefix(xid.byDefault, "pg_catalog.") != "pg_current_xact_id()":
		actions = append(actions, "ALTER COLUMN xid SET DEFAULT pg_current_xact_id(), ALTER COLUMN xid SET NOT NULL")
	}
	order, exists := columns[orderColumn]
	if exists && (order.null != "" || order.byDefault != "identity" && !strings.HasPrefix(order.byDefault, "nextval(")) {
		renamed, exists = append(renamed, orderColumn), false
	}
	if !exists {
		actions = append(actions, addOrder)
	}
	if len(actions) == 0 {
		return "", nil
	}
	return alterRoot(ctx, conn, t, renamed, actions)
}

const addOrder = "ADD COLUMN position bigint NOT NULL GENERATED ALWAYS AS IDENTITY"

// alterRoot returns the statements that rename columns of t, or of the root of which it is a partition, and then alter it. If Postgres adds
// no identity there, addOrder becomes a column with a sequence, on which those that insert need a right.
func alterRoot(ctx context.Context, conn executor, t Table, renamed, actions []string) (string, error) {
	type root struct {
		schema, name string
		serial       bool
	}
	r, err := queryOne(ctx, conn, func(row pgx.CollectableRow) (r root, err error) {
		return r, row.Scan(&r.schema, &r.name, &r.serial)
	}, "find the root", `
		SELECT n.nspname, r.relname, EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = r.oid)
			AND (r.relkind <> 'p' OR pg_catalog.current_setting('server_version_num')::int < 170000)
		FROM pg_catalog.pg_class r JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
		WHERE r.oid = COALESCE(pg_catalog.pg_partition_root($1::text::oid), $1::text::oid)`, fmt.Sprint(t.OID))
	if err != nil {
		return "", err
	}
	alter := "ALTER TABLE " + sqlName(r.schema, r.name) + " "
	var statements []string
	for _, column := range renamed {
		statements = append(statements, alter+"RENAME COLUMN "+column+" TO …")
	}
	grant := ""
	if i := slices.Index(actions, addOrder); i >= 0 && r.serial {
		actions[i] = "ADD COLUMN position bigserial"
		grant = "; GRANT USAGE ON SEQUENCE " + sqlName(r.schema, r.name+"_position_seq") + " TO …"
	}
	return strings.Join(append(statements, alter+strings.Join(actions, ", ")), "; ") + grant, nil
}
