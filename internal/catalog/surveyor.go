package catalog

import (
	"context"
	"crypto/tls"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Surveyor reads what decides whether a relay can deliver, over an ordinary, read-only connection. It
// opens the connection when it needs one, and re-opens it after an error. One goroutine uses it.
//
// The errors of its methods wrap the same errors as those of [Inspect].
type Surveyor struct {
	settings *pgconn.Config
	source   *pgconn.Config // for a connection in replication mode
	conn     *pgconn.PgConn // nil: none
}

// NewSurveyor returns a Surveyor. It does not connect. The application_name of its connection ends with
// " check".
func NewSurveyor(conn *pgconn.Config) *Surveyor {
	return &Surveyor{settings: readOnly(conn, "check"), source: conn}
}

// Close closes the connection, if there is one, even if ctx has ended.
func (s *Surveyor) Close(ctx context.Context) {
	if s.conn != nil {
		replication.Disconnect(ctx, s.conn)
		s.conn = nil
	}
}

// Connect opens the connection if there is none.
func (s *Surveyor) Connect(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	conn, err := connect(ctx, s.settings)
	s.conn = conn
	return err
}

// Peer returns the address of the server, and whether the connection uses TLS, as text for an operator. It
// returns "" without a connection.
func (s *Surveyor) Peer() string {
	if s.conn == nil {
		return ""
	}
	peer := s.conn.Conn().RemoteAddr().String()
	if _, encrypted := s.conn.Conn().(*tls.Conn); encrypted {
		peer += ", over TLS"
	}
	return peer
}

// survey calls ask with the connection. It closes the connection after an error.
func survey[T any](ctx context.Context, s *Surveyor, ask func(conn executor) (T, error)) (T, error) {
	if err := s.Connect(ctx); err != nil {
		var none T
		return none, err
	}
	answer, err := ask(s.conn)
	if err != nil {
		s.Close(ctx)
	}
	return answer, err
}

// Inspect is the function [Inspect] over the connection of the Surveyor.
func (s *Surveyor) Inspect(ctx context.Context, publication, slot string, tables []string) (*State, error) {
	if err := replication.CheckNames(publication, slot); err != nil {
		return nil, err
	}
	return survey(ctx, s, func(conn executor) (*State, error) { return inspect(ctx, conn, publication, slot, NewTables(tables)) })
}

// Walsender checks that the role can open a replication connection to the database: that pg_hba.conf, the
// role and max_wal_senders allow it. It opens one, runs IDENTIFY_SYSTEM and closes it.
func (s *Surveyor) Walsender(ctx context.Context) error {
	settings := replication.Walsender(s.source)
	settings.RuntimeParams["application_name"] += " check"
	conn, err := replication.Connect(ctx, settings)
	if err != nil {
		return err
	}
	defer replication.Disconnect(ctx, conn)
	_, err = conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	return replication.QueryError(ctx, "identify the server", err)
}
