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
	"github.com/twmb/franz-go/pkg/kgo"
)

// Servers are where a measurement runs.
type Servers struct {
	DSN      string          // libpq conninfo, for the contenders
	Postgres *pgx.ConnConfig // for the bench itself; nil: DSN
	Brokers  []string
	Kafka    []kgo.Opt // TLS and SASL of the bench's own clients; none: plain text
}

// contactTimeout is for the first answer of a server.
const contactTimeout = 10 * time.Second

// A ServerError says that a server does not do what a measurement needs.
type ServerError struct {
	Kafka  bool   // or else Postgres
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

func kafkaError(doing string, err error) error {
	return &ServerError{
		Kafka: true, Err: fmt.Errorf("%s: %w", doing, err),
		Advice: "Check sink.kafka.brokers, and that its user may create, read and delete topics named " + topicPrefix + "*.",
	}
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
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, contactTimeout)
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name": name, "statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"lock_timeout": "10s", "client_min_messages": "warning",
	})
	cfg.MaxConns = maxWriters + 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	if err := pool.Ping(limited); err != nil {
		pool.Close()
		return nil, postgresError("reach Postgres", err)
	}
	return pool, nil
}

// newClient returns a Kafka client that has reached a broker.
func (s Servers) newClient(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{kgo.SeedBrokers(s.Brokers...), kgo.ClientID(clientID)}
	client, err := kgo.NewClient(append(append(base, s.Kafka...), opts...)...)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		client.Close()
		return nil, kafkaError("reach a broker", err)
	}
	return client, nil
}
