package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// CheckFormer returns an error that wraps ErrRefill if a table was an outbox, or a part of one, is none now, and may have rows that are not
// delivered: a refill does not send them, and drops the slot that has them. recorded is what an earlier [State.Published] has returned. The
// snapshot delivered sees the delivered transactions. CheckFormer decodes the WAL of the slot, which takes long and needs the privilege
// REPLICATION; nobody may stream from the slot meanwhile.
func (c *State) CheckFormer(ctx context.Context, conn *pgconn.Config, recorded, delivered string) error {
	was, _ := parsePublished(recorded)
	now := carriers(c)
	former := slices.DeleteFunc(slices.Clone(was.Tables), func(e entry) bool { return now[e.OID] })
	if len(former) == 0 && !c.hasWAL() {
		return nil
	}
	settings, skipped := lasting(conn, "recover"), false
	settings.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { skipped = skipped || n.Code == notInPrerequisiteState }
	session, err := connect(ctx, settings)
	if err != nil {
		return err
	}
	defer replication.Disconnect(ctx, session)
	var dropped []entry
	for _, e := range former {
		name, err := queryOne(ctx, session, pgx.RowTo[string], "look up a former outbox table", `
			SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
			JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid`, oid(e.OID))
		switch {
		case err != nil:
			return err
		case name == nil:
			dropped = append(dropped, e)
		default:
			if err := c.checkRenamed(ctx, session, e.OID, *name, delivered); err != nil {
				return err
			}
		}
	}
	if !c.hasWAL() {
		return nil
	}
	if err := c.checkDropped(ctx, session, dropped, &skipped, delivered); err != nil {
		return err
	}
	for _, table := range c.partitioned(was) {
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
	if c.Publication == nil || !c.Publication.ViaRoot {
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
func (c *State) checkRenamed(ctx context.Context, conn executor, oid uint32, table, delivered string) error {
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
	first := ""
	if c.Publication != nil && c.Publication.member(oid) == nil {
		first = c.Publication.Add(table) + ", as the owner of the table, then "
	}
	return fmt.Errorf("%w: table %s was an outbox when the position was recorded, and may have rows that are not delivered; to send them too: %s%s --set %s",
		ErrRefill, table, first, InstructRecover, argument("outbox.tables="+strings.Join(tables, ",")))
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
			FROM delivered, LATERAL `+peek+` p WHERE `+isInsert+` AND pg_catalog.substr(data, 2, 4) = pg_catalog.substr(pg_catalog.int8send($4::text::bigint), 5) GROUP BY 1),
		present AS (SELECT %s AS xid, pg_catalog.count(*) AS n FROM %s, delivered WHERE NOT pg_catalog.pg_visible_in_snapshot(%[1]s, s) GROUP BY 1)
		SELECT COALESCE(pg_catalog.sum(w.n - COALESCE(p.n, 0)), 0)::bigint
		FROM delivered, written w LEFT JOIN present p ON p.xid = w.xid
		WHERE NOT pg_catalog.pg_visible_in_snapshot(w.xid, s) AND w.n > COALESCE(p.n, 0)`, xidColumn, table.SQLName()),
		c.SlotName, replication.QuoteIdent(c.PublicationName), *end, oid(table.OID), delivered)
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
	return fmt.Sprintf("%s, and the slot may have the only copy of rows of it; send those of the present table: %s, then start the relay once with outbox-cdc run --accept-gap, which sends those that the slot has; it sends rows of the present table that were inserted since the publication has it once more",
		what, replayUndelivered(delivered))
}

// replayUndelivered returns the command that sends the rows of the tables that are not delivered.
func replayUndelivered(delivered string) string {
	return fmt.Sprintf(`outbox-cdc replay --where "NOT pg_visible_in_snapshot(xid, '%s')" --dsn "$OPERATOR_DSN"`, delivered)
}

// peek reads what the slot $1 has of the publication $2, up to the LSN $3 if that is not empty. isRow selects new rows, isInsert those of
// inserts, and isRelation what describes a table. Each begins with the type of the message and the OID of the table.
const (
	peek       = `pg_catalog.pg_logical_slot_peek_binary_changes($1::text::name, NULLIF($3::text, '')::pg_catalog.pg_lsn, NULL, 'proto_version', '1', 'publication_names', $2)`
	isRow      = `pg_catalog.get_byte(data, 0) IN (pg_catalog.ascii('I'), pg_catalog.ascii('U'))`
	isInsert   = `pg_catalog.get_byte(data, 0) = pg_catalog.ascii('I')`
	isRelation = `pg_catalog.get_byte(data, 0) = pg_catalog.ascii('R')`
)

// checkDropped returns an error if the slot may have rows of a table that was dropped: nothing else has them. tables are those that were
// outboxes at the last record. Another one, which was created after it, is taken for one if it had the column of an outbox. skipped is set if
// Postgres warns that rows were committed while the publication did not exist, which it does from version 18 on; before, it is an error.
func (c *State) checkDropped(ctx context.Context, conn executor, tables []entry, skipped *bool, delivered string) error {
	relations, err := query(ctx, conn, pgx.RowTo[[]byte], "look for rows of dropped tables in the WAL", `
		SELECT relation FROM (
			SELECT pg_catalog.substr(data, 2, 4) AS id, (pg_catalog.array_agg(data) FILTER (WHERE `+isRelation+`))[1] AS relation, pg_catalog.bool_or(`+isRow+`) AS written
			FROM `+peek+` WHERE `+isRelation+` OR `+isRow+` GROUP BY 1) t
		WHERE written AND id NOT IN (SELECT pg_catalog.substr(pg_catalog.int8send(oid::text::bigint), 5) FROM pg_catalog.pg_class)`,
		c.SlotName, replication.QuoteIdent(c.PublicationName), "")
	switch {
	case (err == nil && *skipped || sqlState(err) == undefinedObject) && len(tables) > 0:
		return fmt.Errorf("%w: table %s was dropped, and the slot cannot send its rows, because the publication did not exist later on; those that were not delivered are lost unless the present table has them; to go on with these: %s, then %s, then start the relay once with outbox-cdc run --accept-gap",
			ErrRefill, tables[0].Name, instructDrop+InstructSetup, replayUndelivered(delivered))
	case err != nil && sqlState(err) != "" && len(tables) > 0:
		return fmt.Errorf("%w: %s", ErrRefill, onlyInSlot("table "+tables[0].Name+" was dropped", delivered))
	case sqlState(err) == undefinedObject:
		return nil // the slot cannot send what is older than the publication
	case err != nil:
		return err
	}
	for _, data := range relations {
		m, err := pglogrepl.Parse(data)
		if err != nil {
			return fmt.Errorf("look for rows of dropped tables in the WAL: %w", err)
		}
		relation, _ := m.(*pglogrepl.RelationMessage)
		if relation == nil || !wasOutbox(relation, tables) {
			continue
		}
		return fmt.Errorf("%w: %s", ErrRefill, onlyInSlot("table "+relation.Namespace+"."+relation.RelationName+" was dropped", delivered))
	}
	return nil
}

// wasOutbox reports whether a relation is one of tables, or has the column of an outbox with the transaction of a row.
func wasOutbox(relation *pglogrepl.RelationMessage, tables []entry) bool {
	return slices.ContainsFunc(tables, func(e entry) bool { return e.OID == relation.RelationID }) ||
		slices.ContainsFunc(relation.Columns, func(c *pglogrepl.RelationMessageColumn) bool { return c.Name == xidColumn })
}
