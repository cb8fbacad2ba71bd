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

// CheckFormer returns an error that wraps ErrRefill if a table was an outbox according to recorded, which an earlier [State.Published]
// has returned, is none now, and may have rows that are not delivered: a refill does not send them, and drops the slot that has them. The
// snapshot delivered sees the delivered transactions. If such a table was dropped, CheckFormer decodes the WAL of the slot, which takes
// long and needs the privilege REPLICATION; nobody may stream from the slot meanwhile.
func (c *State) CheckFormer(ctx context.Context, conn *pgconn.Config, recorded, delivered string) error {
	was, _ := parsePublished(recorded)
	now := carriers(c)
	former := slices.DeleteFunc(was.Tables, func(e entry) bool { return now[e.OID] })
	if len(former) == 0 {
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
		case c.Slot != nil && !c.lost():
			err = c.checkDropped(ctx, session, e, delivered)
		}
		if err != nil {
			return err
		}
	}
	return nil
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

// checkDropped returns an error if the slot may have rows of a table that was dropped: nothing else has them.
func (c *State) checkDropped(ctx context.Context, conn executor, table entry, delivered string) error {
	left, err := queryOne(ctx, conn, pgx.RowTo[bool], "look for rows of a dropped table in the WAL", `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_logical_slot_peek_binary_changes($1::text::name, NULL, NULL, 'proto_version', '1', 'publication_names', $2)
			WHERE pg_catalog.get_byte(data, 0) IN (pg_catalog.ascii('I'), pg_catalog.ascii('U'))
				AND pg_catalog.substr(data, 2, 4) = pg_catalog.substr(pg_catalog.int8send($3::text::bigint), 5))`,
		c.SlotName, replication.QuoteIdent(c.PublicationName), oid(table.OID))
	switch {
	case err == nil && !*left:
		return nil
	case err != nil && sqlState(err) == "":
		return err
	}
	return fmt.Errorf(`%w: table %s was dropped, and the slot may have the only copy of rows of it; send those of the present table: outbox-cdc replay --where "NOT pg_visible_in_snapshot(xid, '%s')" --dsn "$OPERATOR_DSN", then start the relay once with outbox-cdc run --accept-gap, which sends those that the slot has; it sends rows of the present table that were inserted since the publication has it once more`,
		ErrRefill, table.Name, delivered)
}
