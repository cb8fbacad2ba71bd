package catalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An Observer looks at the catalog beside a stream, over an ordinary connection that it
// opens when it is needed, keeps, and opens again after an error and once a minute. It
// belongs to one goroutine at a time.
type Observer struct {
	settings          *pgconn.Config
	publication, slot string
	messages          bool // see State.Messages

	conn   *preparer // nil: none
	opened time.Time // the newest one that there was
}

// maxObserverAge is how long a connection is kept. A smart shutdown of the server waits
// for every ordinary connection to end, without a word to it, and refuses new ones.
const maxObserverAge = time.Minute

// statementTimeout, in ms, is for a server that goes on although nobody waits any more.
const statementTimeout = "30000"

// Observe returns an Observer of the server that a stream is connected to, of its publication
// and its slot; cfg is what [replication.Stream.Config] returns. It contacts nobody. It shows up
// as the stream's application_name with " watch" behind it.
func Observe(cfg replication.Config) *Observer {
	settings := replication.Ordinary(cfg.Conn)
	settings.RuntimeParams["application_name"] += " watch"
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	settings.RuntimeParams["idle_session_timeout"] = "0"
	settings.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	settings.RuntimeParams["synchronous_commit"] = "off" // for EmitSnapshot: it may be lost, and waits for no standby
	return &Observer{settings: settings, publication: cfg.Publication, slot: cfg.Slot, messages: len(cfg.Messages) > 0}
}

// ObserveSlot returns an Observer of the slot over conn, without a stream: for [Observer.InspectSlot]. It
// contacts nobody.
func ObserveSlot(conn *pgconn.Config, slot string) *Observer {
	return &Observer{settings: looking(conn, "status"), slot: slot}
}

// looking returns conn changed for an ordinary connection that cannot write, and shows up with
// purpose behind its application_name.
func looking(conn *pgconn.Config, purpose string) *pgconn.Config {
	settings := replication.Ordinary(conn)
	settings.RuntimeParams["application_name"] += " " + purpose
	settings.RuntimeParams["default_transaction_read_only"] = "on"
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	return settings
}

// InspectSlot is Inspect without the publication, which is most of what that reads. A server that is
// too old is ErrConfig.
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

// Inspect reads what the function [Inspect] reads. It blocks until then or until ctx ends. After an
// error, which is mostly one of ErrUnreachable, ErrAccess and ErrBusy, it may be called again.
func (o *Observer) Inspect(ctx context.Context) (*State, error) {
	conn, err := o.connected(ctx)
	if err != nil {
		return nil, err
	}
	c, err := inspect(ctx, conn, o.publication, o.slot)
	if err != nil {
		o.Close(ctx)
		return nil, err
	}
	c.Messages = o.messages
	return c, nil
}

// cannotConnectNow is the SQLSTATE with which a server that starts or stops refuses connections.
const cannotConnectNow = "57P03"

// Wait blocks until ctx ends, and then returns nil, or until the server stops without waiting for its
// clients, and then returns an error of [replication.ErrServerStopping]: it has ended the connection, and
// refuses another. Wait opens the connection if there is none.
func (o *Observer) Wait(ctx context.Context) error {
	for {
		conn, err := o.connected(ctx)
		if err != nil {
			refused, ok := errors.AsType[*pgconn.PgError](err)
			if ok && refused.Code == cannotConnectNow && time.Since(o.opened) < maxObserverAge {
				return fmt.Errorf("%w: %w", replication.ErrServerStopping, err)
			}
			<-ctx.Done()
			return nil
		}
		_ = conn.WaitForNotification(ctx) // which nobody sends
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx has ended the wait
		}
		o.Close(ctx)
	}
}

// EmitSnapshot writes a transactional logical message with [MessagePrefix] into the WAL, for a
// stream with that [replication.Config.MessagePrefix] to read. Its content is nonce, a bar and what
// pg_current_snapshot() returns: when the message comes in the stream, every transaction
// that the snapshot sees has come before. On a standby, which cannot write, it does nothing.
// https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-REPLICATION
func (o *Observer) EmitSnapshot(ctx context.Context, nonce string) error {
	conn, err := o.connected(ctx)
	if err != nil {
		return err
	}
	_, err = query(ctx, conn, pgx.RowTo[*string], "write a snapshot into the log", `
		SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN
			pg_catalog.pg_logical_emit_message(true, $1, pg_catalog.concat($2::text, '|', pg_catalog.pg_current_snapshot())) END::text`,
		MessagePrefix, nonce)
	if err != nil {
		o.Close(ctx)
	}
	return err
}

// Close closes the connection, if there is one, also after ctx has ended, and waits a
// second at most for the server to do so. The Observer may be used again.
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

// A preparer is a connection that prepares every statement once: to plan them takes the
// server several times as long as to run them.
type preparer struct {
	*pgconn.PgConn
	known map[string]*pgconn.StatementDescription // by text
}

// ExecParams runs sql. What cannot be prepared is run all the same, to say why.
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
