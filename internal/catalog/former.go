package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// CheckFormer returns an error that wraps ErrRefill if a table was an outbox, or a part of one, according to recorded, which an earlier
// [State.Published] has returned, is none now, and may have rows that are not delivered: a refill does not send them, and drops the slot
// that has them. The snapshot delivered sees the delivered transactions. If such a table was dropped, or an outbox is partitioned,
// CheckFormer decodes the WAL of the slot, which takes long and needs the privilege REPLICATION; nobody may stream from the slot meanwhile.
func (c *State) CheckFormer(ctx context.Context, conn *pgconn.Config, recorded, delivered string) error {
	was, _ := parsePublished(recorded)
	now := carriers(c)
	former := slices.DeleteFunc(slices.Clone(was.Tables), func(e entry) bool { return now[e.OID] })
	partitioned := c.partitioned(was)
	if len(former)+len(partitioned) == 0 {
		return nil
	}
	session, err := connect(ctx, lasting(conn, "recover"))
	if err != nil {
		return err
	}
	defer replication.Disconnect(ctx, session)
	for _, e := range former {
		name, err := queryOne(ctx, session, pgx.RowTo[string], "look up a former outbox table", `
			SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
			JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid`, oid(e.OID))
		switch {
		case err != nil:
		case name != nil:
			err = c.checkRenamed(ctx, session, *name, delivered)
		case c.hasWAL():
			err = c.checkDropped(ctx, session, e, delivered)
		}
		if err != nil {
			return err
		}
	}
	for _, table := range partitioned {
		if err := c.checkPartitions(ctx, session, table, delivered); err != nil {
			return err
		}
	}
	return nil
}

// hasWAL reports whether the slot can still send what it has not delivered.
func (c *State) hasWAL() bool { return c.Slot != nil && !c.lost() }

// partitioned returns the recorded outbox tables that are published via their root, if the slot may have rows of partitions that they had.
// Others cannot be refilled.
func (c *State) partitioned(was published) (roots []Part) {
	if !c.hasWAL() || c.Publication == nil || !c.Publication.ViaRoot {
		return nil
	}
	for _, o := range c.Outboxes {
		if len(o.Parts) > 0 && o.table().Kind == partitionedTable && was.has(o.table().OID) {
			roots = append(roots, o.table())
		}
	}
	return roots
}

// checkRenamed returns an error unless every row of a table, written in SQL, is delivered.
func (c *State) checkRenamed(ctx context.Context, conn executor, table, delivered string) error {
	left, err := queryOne(ctx, conn, pgx.RowTo[bool], "look for undelivered rows in "+table, fmt.Sprintf(
		"SELECT EXISTS (SELECT FROM %s WHERE NOT pg_catalog.pg_visible_in_snapshot(%s, $1::pg_catalog.pg_snapshot))", table, xidColumn), delivered)
	switch {
	case err == nil && !*left:
		return nil
	case err != nil && sqlState(err) == "":
		return err
	}
	tables := []string{table}
	for _, o := range c.Outboxes {
		tables = append(tables, o.Configured)
	}
	return fmt.Errorf("%w: table %s was an outbox when the position was recorded, and may have rows that are not delivered; to send them too: %s --set %s",
		ErrRefill, table, InstructRecover, argument("outbox.tables="+strings.Join(tables, ",")))
}

// checkPartitions returns an error if the slot has undelivered rows that a partitioned table, whose changes are published via the root, has
// not: another partition had them. It compares each transaction, because the table has rows that the slot has not.
func (c *State) checkPartitions(ctx context.Context, conn executor, table Part, delivered string) error {
	end, err := queryOne(ctx, conn, pgx.RowTo[string], "read the end of the WAL", "SELECT pg_catalog.pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	lost, err := queryOne(ctx, conn, pgx.RowTo[int64], "look for rows of former partitions in the WAL", fmt.Sprintf(`
		WITH delivered AS (SELECT s, pg_catalog.pg_snapshot_xmax(s)::text::bigint AS latest FROM (SELECT $5::pg_catalog.pg_snapshot) t (s)),
		written AS (
			SELECT (latest - 2147483648 + pg_catalog.mod(pg_catalog.mod(p.xid::text::bigint - latest, 4294967296) + 4294967296 + 2147483648, 4294967296))::text::pg_catalog.xid8 AS xid,
				pg_catalog.count(*) AS n
			FROM delivered, LATERAL `+peek+` p WHERE `+isInsert+` AND `+isOfTable+` GROUP BY 1),
		present AS (SELECT %s AS xid, pg_catalog.count(*) AS n FROM %s, delivered WHERE NOT pg_catalog.pg_visible_in_snapshot(%[1]s, s) GROUP BY 1)
		SELECT COALESCE(pg_catalog.sum(w.n - COALESCE(p.n, 0)), 0)::bigint
		FROM delivered, written w LEFT JOIN present p ON p.xid = w.xid
		WHERE NOT pg_catalog.pg_visible_in_snapshot(w.xid, s) AND w.n > COALESCE(p.n, 0)`, xidColumn, table.SQLName()),
		c.SlotName, replication.QuoteIdent(c.PublicationName), oid(table.OID), *end, delivered)
	switch code := sqlState(err); {
	case err == nil && *lost == 0, code == undefinedObject, code == undefinedColumn:
		return nil // the slot cannot send what is older than the publication, and a refill reports a table without the column
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %s", ErrRefill, onlyInSlot(fmt.Sprintf("%d rows of table %s that are not delivered are not in it any more: a partition was detached or dropped, or rows were deleted", *lost, table.text()), delivered))
}

// onlyInSlot returns what to do if the slot may have the only copy of rows, because of what.
func onlyInSlot(what, delivered string) string {
	return fmt.Sprintf(`%s, and the slot may have the only copy of rows of it; send those of the present table: outbox-cdc replay --where "NOT pg_visible_in_snapshot(xid, '%s')" --dsn "$OPERATOR_DSN", then start the relay once with outbox-cdc run --accept-gap, which sends those that the slot has; it sends rows of the present table that were inserted since the publication has it once more`,
		what, delivered)
}

// peek reads what the slot $1 has of the publication $2, up to the LSN $4 if that is not empty. isOfTable selects what is about rows of
// the table $3, and isInsert the inserts.
const (
	peek      = `pg_catalog.pg_logical_slot_peek_binary_changes($1::text::name, NULLIF($4::text, '')::pg_catalog.pg_lsn, NULL, 'proto_version', '1', 'publication_names', $2)`
	isOfTable = `pg_catalog.get_byte(data, 0) IN (pg_catalog.ascii('I'), pg_catalog.ascii('U')) AND pg_catalog.substr(data, 2, 4) = pg_catalog.substr(pg_catalog.int8send($3::text::bigint), 5)`
	isInsert  = `pg_catalog.get_byte(data, 0) = pg_catalog.ascii('I')`
)

// checkDropped returns an error if the slot may have rows of a table that was dropped: nothing else has them.
func (c *State) checkDropped(ctx context.Context, conn executor, table entry, delivered string) error {
	left, err := queryOne(ctx, conn, pgx.RowTo[bool], "look for rows of a dropped table in the WAL", `
		SELECT EXISTS (SELECT FROM `+peek+` WHERE `+isOfTable+`)`,
		c.SlotName, replication.QuoteIdent(c.PublicationName), oid(table.OID), "")
	switch {
	case err == nil && !*left:
		return nil
	case err != nil && sqlState(err) == "":
		return err
	}
	return fmt.Errorf("%w: %s", ErrRefill, onlyInSlot("table "+table.Name+" was dropped", delivered))
}
