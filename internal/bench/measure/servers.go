package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Servers are where a measurement runs.
type Servers struct {
	DSN      string          // libpq conninfo, for the contenders
	Postgres *pgx.ConnConfig // for the bench itself; nil: DSN
	Broker   Broker
}

// ContactTimeout is for the first answer of a server.
const ContactTimeout = 10 * time.Second

// A ServerError says that a server does not do what a measurement needs.
type ServerError struct {
	Broker bool   // or else Postgres
	Advice string // what to do; empty where Err says it
	Err    error
}

// Error returns what went wrong.
func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the error behind it.
func (e *ServerError) Unwrap() error { return e.Err }

// postgresError makes a ServerError of what the database has answered, or of not reaching it.
func postgresError(doing string, err error) error {
	e := &ServerError{Err: fmt.Errorf("%s: %w", doing, err)}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Advice = "A slot is made when the transactions have ended that were open before. Look for old ones in pg_stat_activity."
	case !ok:
		e.Advice = "Check source.dsn, and that the server listens there."
	case answer.Code == "42501": // insufficient_privilege
		e.Advice = "The bench makes a schema, a publication and slots of its own and drops them again. Its role needs CREATE on the\n" +
			"database and the attribute REPLICATION: GRANT CREATE ON DATABASE … TO …; ALTER ROLE … REPLICATION;"
	case answer.Code == "55000": // object_not_in_prerequisite_state
		e.Advice = "Logical decoding needs wal_level = logical and a restart of the server."
	case answer.Code == "53400": // configuration_limit_exceeded
		e.Advice = "The bench needs two replication slots more: raise max_replication_slots, or drop what is not used."
	}
	return e
}

// newPool returns connections to the database. name is what they are called in pg_stat_activity.
func (s Servers) newPool(ctx context.Context, name string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.DSN)
	if s.Postgres != nil {
		cfg, err = pgxpool.ParseConfig("")
	}
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	if s.Postgres != nil {
		cfg.ConnConfig = s.Postgres.Copy()
	}
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, ContactTimeout)
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name": name, "statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"lock_timeout": "10s", "client_min_messages": "warning",
	})
	cfg.MaxConns = maxWriters + 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, ContactTimeout)
	defer cancel()
	if err := pool.Ping(limited); err != nil {
		pool.Close()
		return nil, postgresError("reach Postgres", err)
	}
	return pool, nil
}
