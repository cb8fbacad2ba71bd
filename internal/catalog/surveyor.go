package catalog

import (
	"context"
	"crypto/tls"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A Surveyor asks a server what decides whether a relay will deliver, over an ordinary
// connection that it opens when it is needed and again after an error. It writes nothing: its
// session is read-only. Each method blocks until the answer or the end of ctx. It belongs to
// one goroutine.
//
// What a method returns is wrapped like the errors of [Inspect].
type Surveyor struct {
	settings *pgconn.Config
	source   *pgconn.Config // for a connection in replication mode
	conn     *pgconn.PgConn // nil: none
}

// NewSurveyor returns a Surveyor. It contacts nobody. It shows up with " check" behind
// application_name.
func NewSurveyor(conn *pgconn.Config) *Surveyor {
	return &Surveyor{settings: looking(conn, "check"), source: conn}
}

// Close closes the connection, if there is one, also after ctx has ended.
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
	conn, err := replication.Connect(ctx, s.settings)
	s.conn = conn
	return err
}

// Peer says which server has been connected to, and whether that is encrypted.
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

// survey runs ask over the connection, which an error closes.
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

// Inspect reads what the function [Inspect] reads.
func (s *Surveyor) Inspect(ctx context.Context, publication, slot string) (*State, error) {
	if err := replication.CheckNames(publication, slot); err != nil {
		return nil, err
	}
	return survey(ctx, s, func(conn executor) (*State, error) { return inspect(ctx, conn, publication, slot) })
}

// Walsender opens a connection in replication mode to the database, asks the server who it is,
// and closes the connection: pg_hba.conf, the role and max_wal_senders allow it, or the error says
// which does not.
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
