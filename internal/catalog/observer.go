package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An Observer reads the catalog while a relay streams, over an ordinary connection. It opens the
// connection when it needs one, and re-opens it after an error and once a minute. One goroutine at a
// time uses it.
type Observer struct {
	settings          *pgconn.Config
	publication, slot string
	messages          bool // see State.Messages
	tables            *Tables
	seen              definition // of the last Inspect

	conn   *preparer // nil: none
	opened time.Time // when the newest connection was opened
}

// maxObserverAge is how long a connection is used. A smart shutdown of Postgres waits until every
// ordinary connection has ended, does not notify them, and rejects new ones.
const maxObserverAge = time.Minute

// observerPatience, in ms, is how long an Observer waits for a transaction that locks a published table. It leaves time to
// find that transaction.
const observerPatience = "5000"

// statementTimeout, in ms, ends a statement on the server if the relay no longer waits for it.
const statementTimeout = "30000"

// Observe returns an Observer of the server, the publication, the outbox tables and the slot of a stream. cfg is the
// result of [replication.Stream.Config]. Observe does not connect. The application_name of the
// connection is that of the stream with " watch" appended.
func Observe(cfg replication.Config, tables *Tables) *Observer {
	settings := replication.Ordinary(cfg.Conn)
	settings.RuntimeParams["application_name"] += " watch"
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	settings.RuntimeParams[lockTimeout] = observerPatience
	settings.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	settings.RuntimeParams["synchronous_commit"] = "off" // for EmitSnapshot, which may be lost and need not wait for a standby
	return &Observer{settings: settings, publication: cfg.Publication, slot: cfg.Slot, messages: len(cfg.Messages) > 0, tables: tables}
}

// ObserveSlot returns an Observer of a slot without a stream, for [Observer.InspectSlot]. It does not
// connect.
func ObserveSlot(conn *pgconn.Config, slot string) *Observer {
	return &Observer{settings: readOnly(conn, "status"), slot: slot}
}

// readOnly returns a copy of conn for an ordinary, read-only connection. It appends purpose to the
// application_name.
func readOnly(conn *pgconn.Config, purpose string) *pgconn.Config {
	settings := replication.ReadOnly(replication.Ordinary(conn))
	settings.RuntimeParams["application_name"] += " " + purpose
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	return settings
}

// InspectSlot is Inspect without the publication, which takes most of the time. It returns an error that
// wraps ErrConfig if the server is too old.
func (o *Observer) InspectSlot(ctx context.Context) (*State, error) {
	conn, err := o.connected(ctx)
	if err != nil {
		return nil, err
	}
	c, err := readServer(ctx, conn)
	if err == nil && c.ServerVersion < oldestServer {
		err = c.verifyServer()
	}
	if err == nil {
		c.SlotName = o.slot
		c.Slot, err = readSlot(ctx, conn, c.ServerVersion, o.slot)
	}
	if err == nil && c.Slot != nil {
		c.Oldest, err = readOldest(ctx, conn)
	}
	if err != nil {
		o.Close(ctx)
		return nil, err
	}
	return c, nil
}

// Inspect is the function [Inspect] over the connection of the Observer. It may be called again after an
// error, which usually wraps ErrUnreachable, ErrAccess or ErrBusy.
func (o *Observer) Inspect(ctx context.Context) (*State, error) {
	conn, err := o.connected(ctx)
	if err != nil {
		return nil, err
	}
	c, err := inspect(ctx, conn, o.publication, o.slot, o.tables)
	if err != nil {
		o.Close(ctx)
		return nil, err
	}
	c.Messages = o.messages
	o.seen = c.definition()
	return c, nil
}

// endedPause is the pause after a session that was ended while it started.
const endedPause = 20 * time.Millisecond

// SQLSTATEs of a server that starts or shuts down: it rejects connections, and it ends a session.
const (
	cannotConnectNow = "57P03"
	adminShutdown    = "57P01"
)

// Wait blocks until ctx ends, and returns nil. If the server starts a fast shutdown first, it has ended
// the connection and rejects a new one; Wait then returns an error that wraps
// [replication.ErrServerStopping]. Wait opens the connection if there is none.
func (o *Observer) Wait(ctx context.Context) error {
	for {
		conn, err := o.connected(ctx)
		if err != nil {
			refused, ok := errors.AsType[*pgconn.PgError](err)
			switch {
			case ok && refused.Code == adminShutdown: // while the session started; the next answer says whether the server stops
				o.opened = time.Now()
				select {
				case <-time.After(endedPause):
					continue
				case <-ctx.Done():
					return nil
				}
			case ok && refused.Code == cannotConnectNow && time.Since(o.opened) < maxObserverAge:
				return fmt.Errorf("%w: %w", replication.ErrServerStopping, err)
			}
			<-ctx.Done()
			return nil
		}
		_ = conn.WaitForNotification(ctx) // no notification comes; it returns when the connection ends
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the error is that of ctx
		}
		o.Close(ctx)
	}
}

// EmitSnapshot writes a transactional logical message with [MessagePrefix] to the WAL, for a stream
// with that [replication.Config.MessagePrefix]. Its content is nonce, "|" and the result of
// pg_current_snapshot(). The stream sends the message after every transaction that is visible in the
// snapshot. On a standby, which cannot write, EmitSnapshot does nothing.
//
// It writes nothing and returns true if, in that snapshot, the outbox tables or the publication are not those of the last Inspect:
// transactions that are visible in it may have written rows that are not published.
// https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-REPLICATION
func (o *Observer) EmitSnapshot(ctx context.Context, nonce string) (changed bool, err error) {
	conn, err := o.connected(ctx)
	if err != nil {
		return false, err
	}
	same, err := queryOne(ctx, conn, func(row pgx.CollectableRow) (same bool, err error) {
		var lsn *string
		return same, row.Scan(&same, &lsn)
	}, "write a snapshot to the WAL", `
		SELECT d.publication = $4 AND d.parts = $5 AS same, CASE WHEN d.publication = $4 AND d.parts = $5 AND NOT pg_catalog.pg_is_in_recovery() THEN
			pg_catalog.pg_logical_emit_message(true, $1, pg_catalog.concat($2::text, '|', pg_catalog.pg_current_snapshot())) END::text AS lsn
		FROM (`+definitionSQL+`) d`,
		MessagePrefix, nonce, o.publication, o.seen.publication, o.seen.parts, cmp.Or(o.seen.oids, "{}"))
	if err != nil {
		o.Close(ctx)
		return false, err
	}
	return !*same, nil
}

// Close closes the connection, if there is one, even if ctx has ended. It waits at most one second
// for the server. The Observer may be used again.
func (o *Observer) Close(ctx context.Context) {
	if o.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = o.conn.Close(ctx)
	o.conn = nil
}

func (o *Observer) connected(ctx context.Context) (*preparer, error) {
	if o.conn != nil && time.Since(o.opened) > maxObserverAge {
		o.Close(ctx)
	}
	if o.conn == nil {
		conn, err := replication.Connect(ctx, o.settings)
		if err != nil {
			return nil, err
		}
		o.conn, o.opened = &preparer{PgConn: conn, known: make(map[string]*pgconn.StatementDescription)}, time.Now()
	}
	return o.conn, nil
}

// A preparer is a connection that prepares every statement once, because planning the statements
// takes the server several times as long as running them.
type preparer struct {
	*pgconn.PgConn
	known map[string]*pgconn.StatementDescription // by text
}

// ExecParams runs sql. If sql cannot be prepared, ExecParams runs it unprepared, which returns the error.
func (p *preparer) ExecParams(ctx context.Context, sql string, values [][]byte, oids []uint32, valueFormats, resultFormats []int16) *pgconn.ResultReader {
	s := p.known[sql]
	if s == nil {
		var err error
		if s, err = p.Prepare(ctx, "statement"+strconv.Itoa(len(p.known)), sql, oids); err != nil {
			return p.PgConn.ExecParams(ctx, sql, values, oids, valueFormats, resultFormats)
		}
		p.known[sql] = s
	}
	return p.ExecStatement(ctx, s, values, valueFormats, resultFormats)
}
