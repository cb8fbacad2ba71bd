package catalog

import (
	"context"
	"crypto/tls"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Reader reads what decides whether a relay can deliver, over an ordinary, read-only connection. It
// opens the connection when it needs one, and re-opens it after an error. One goroutine uses it.
//
// The errors of its methods wrap the same errors as those of [Inspect].
type Reader struct {
	settings *pgconn.Config
	source   *pgconn.Config // for a connection in replication mode
	conn     *pgconn.PgConn // nil: none
}

// NewReader returns a Reader. It does not connect. The application_name of its connection ends with
// " check".
func NewReader(conn *pgconn.Config) *Reader {
	return &Reader{settings: readOnly(conn, "check"), source: conn}
}

// Close closes the connection, if there is one, even if ctx has ended.
func (r *Reader) Close(ctx context.Context) {
	if r.conn != nil {
		replication.Disconnect(ctx, r.conn)
		r.conn = nil
	}
}

// Connect opens the connection if there is none.
func (r *Reader) Connect(ctx context.Context) error {
	if r.conn != nil {
		return nil
	}
	conn, err := connect(ctx, r.settings)
	r.conn = conn
	return err
}

// Peer returns the address of the server, and whether the connection uses TLS, as text for an operator. It
// returns "" without a connection.
func (r *Reader) Peer() string {
	if r.conn == nil {
		return ""
	}
	peer := r.conn.Conn().RemoteAddr().String()
	if _, encrypted := r.conn.Conn().(*tls.Conn); encrypted {
		peer += ", over TLS"
	}
	return peer
}

// read calls query with the connection. It closes the connection after an error.
func read[T any](ctx context.Context, r *Reader, query func(conn executor) (T, error)) (T, error) {
	if err := r.Connect(ctx); err != nil {
		var none T
		return none, err
	}
	answer, err := query(r.conn)
	if err != nil {
		r.Close(ctx)
	}
	return answer, err
}

// Inspect is the function [Inspect] over the connection of the Reader.
func (r *Reader) Inspect(ctx context.Context, publication, slot string, tables []string) (*State, error) {
	if err := replication.CheckNames(publication, slot); err != nil {
		return nil, err
	}
	return read(ctx, r, func(conn executor) (*State, error) { return inspect(ctx, conn, publication, slot, NewTables(tables)) })
}

// Walsender checks that the role can open a replication connection to the database: that pg_hba.conf, the
// role and max_wal_senders allow it. It opens one, runs IDENTIFY_SYSTEM and closes it.
func (r *Reader) Walsender(ctx context.Context) error {
	settings := replication.Walsender(r.source)
	settings.RuntimeParams["application_name"] += " check"
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return err
	}
	defer replication.Disconnect(ctx, conn)
	_, err = conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	return replication.QueryError(ctx, "identify the server", err)
}
