package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// refuser returns settings for a connection to host whose server answers the startup message with refusal.
func refuser(t *testing.T, host string, refusal *pgproto3.ErrorResponse) *pgconn.Config {
	t.Helper()
	return scripted(t, host, func(s *walsender.Conn) {
		if _, err := s.ReceiveStartupMessage(); err == nil {
			s.Send(refusal)
			_ = s.Flush()
		}
	})
}

// scripted returns settings for a connection to host that serve answers.
func scripted(t *testing.T, host string, serve func(*walsender.Conn)) *pgconn.Config {
	t.Helper()
	cfg, err := pgconn.ParseConfig("host=" + host + " user=cdc password=x sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(walsender.New(theirs))
		}()
		return ours, nil
	}
	return cfg
}

// The texts of PgBouncer are those of version 1.18; the others come from the documentation of the poolers.
func TestPoolers(t *testing.T) {
	refused := func(code, message string) *pgproto3.ErrorResponse {
		return &pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message}
	}
	const replicationRefused = "unsupported startup parameter: replication"
	for _, tt := range []struct {
		host    string
		refusal *pgproto3.ErrorResponse
		is      error
		says    string // empty: nothing about a pooler
	}{
		{"db port=6432", refused("08P01", replicationRefused), ErrConfig, "; PgBouncer has answered, and the relay needs Postgres itself: use the host and port of Postgres"},
		{"db", refused("08P01", "unsupported startup parameter: row_security"), ErrConfig, "; PgBouncer has answered"},
		{"db", refused("08P01", "bouncer config error"), ErrUnreachable, "; PgBouncer has answered"},
		{"ep-cool-1-pooler.eu-central-1.aws.neon.tech", refused("08P01", replicationRefused), ErrConfig, "; Neon's pooler has answered, and the relay needs Postgres itself: use the host name without -pooler (source.dsn)"},
		{"aws-0-eu-central-1.pooler.supabase.com", refused("28P01", "password authentication failed"), ErrAccess, "; Supavisor, Supabase's pooler has answered"},
		{"pool.example.com", refused("XX000", "Tenant or user not found"), ErrConfig, "db.<project>.supabase.co:5432"},
		{"app.proxy-abc123.eu-central-1.rds.amazonaws.com", refused("0A000", "feature not supported"), ErrConfig, "; RDS Proxy has answered"},
		{"proxy.example.com", refused("0A000", "Feature not supported: RDS Proxy currently doesn't support streaming replication mode"), ErrConfig, "; RDS Proxy has answered"},
		{"app.postgres.database.azure.com port=6432", refused("28000", "no"), ErrAccess, "; Azure's PgBouncer has answered"},
		{"p.abc.db.postgresbridge.com port=5431", refused("28000", "no"), ErrAccess, "; Crunchy Bridge's PgBouncer has answered"},
		{"app.b.db.ondigitalocean.com port=25061", refused("28000", "no"), ErrAccess, "; DigitalOcean's connection pool has answered"},

		{"db", refused("28P01", "password authentication failed"), ErrAccess, ""},
		{"ep-cool-1.eu-central-1.aws.neon.tech", refused("28P01", "no"), ErrAccess, ""},
		{"app.abc123.eu-central-1.rds.amazonaws.com", refused("28P01", "no"), ErrAccess, ""},
		{"app.cluster-abc123.eu-central-1.rds.amazonaws.com", refused("28P01", "no"), ErrAccess, ""},
	} {
		_, err := Connect(t.Context(), refuser(t, tt.host, tt.refusal))
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.refusal.Message) || !strings.Contains(err.Error(), tt.says) ||
			tt.says == "" && strings.Contains(err.Error(), "has answered") {
			t.Errorf("%s, %s: error = %v, want %q", tt.host, tt.refusal.Message, err, tt.says)
		}
	}
}

// TestPoolerIgnoresReplication: with ignore_startup_parameters = replication, PgBouncer gives a replication connection an
// ordinary session.
func TestPoolerIgnoresReplication(t *testing.T) {
	cfg := scripted(t, "db", func(s *walsender.Conn) {
		if s.Accept() != nil {
			return
		}
		if _, err := s.Receive(); err == nil {
			s.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: syntaxError, Message: `syntax error at or near "IDENTIFY_SYSTEM"`})
			s.SendReady()
		}
		_, _ = s.Receive()
	})
	_, err := Open(t.Context(), Config{Conn: cfg, Publication: "p", Slot: "s"}, nil)
	if !errors.Is(err, ErrConfig) || !strings.HasSuffix(err.Error(), remedyPooled) {
		t.Errorf("error = %v", err)
	}
	err = QueryError(t.Context(), "create slot", &pgconn.PgError{Severity: "ERROR", Code: syntaxError, Message: `syntax error at or near "CREATE_REPLICATION_SLOT"`})
	if !errors.Is(err, ErrConfig) || !strings.HasSuffix(err.Error(), remedyPooled) {
		t.Errorf("error = %v", err)
	}
}

// TestPoolerIgnoresParameters: with ignore_startup_parameters, PgBouncer gives a session the settings of its own.
func TestPoolerIgnoresParameters(t *testing.T) {
	for setting, pooled := range map[string]bool{"on": true, "off": false} {
		cfg := scripted(t, "db", func(s *walsender.Conn) {
			if _, err := s.ReceiveStartupMessage(); err != nil {
				return
			}
			s.Send(&pgproto3.AuthenticationOk{})
			s.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "18.1"})
			s.SendReady()
			if _, err := s.Receive(); err != nil {
				return
			}
			s.SendRows([]string{"current_setting"}, []string{setting})
			_, _ = s.Receive()
		})
		conn, err := Connect(t.Context(), Ordinary(cfg))
		if err == nil {
			Disconnect(t.Context(), conn)
		}
		if FromPooler(err) != pooled || errors.Is(err, ErrConfig) != pooled || errors.Is(err, ErrAccess) {
			t.Errorf("row_security = %s: error = %v", setting, err)
		}
	}
}

// TestErrorsOfPoolers: the errors that only a pooler causes, and the text for a connection of the driver's own.
func TestErrorsOfPoolers(t *testing.T) {
	for code, message := range map[string]string{
		"42P05": `prepared statement "stmtcache_1" already exists`, "26000": `prepared statement "stmtcache_1" does not exist`,
		"08P01": "unsupported startup parameter: lock_timeout", syntaxError: `syntax error at or near "IDENTIFY_SYSTEM"`,
	} {
		if err := QueryError(t.Context(), "look", &pgconn.PgError{Code: code, Message: message}); !FromPooler(err) {
			t.Errorf("not a pooler's: %v", err)
		}
	}
	if FromPooler(&pgconn.PgError{Code: syntaxError, Message: `syntax error at or near "FROM"`}) {
		t.Error("every syntax error is a pooler's")
	}
	refusal := &pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: lock_timeout"}
	_, err := pgconn.ConnectConfig(t.Context(), refuser(t, "db", refusal))
	if got := ExplainConnect(err); !strings.Contains(got.Error(), "; PgBouncer has answered, and the relay needs Postgres itself") || !FromPooler(got) {
		t.Errorf("error = %v", got)
	}
}

// The error of a connection of the driver's own means what it means for one of this package.
func TestExplainConnect(t *testing.T) {
	nobody, err := pgconn.ParseConfig("postgres://a@127.0.0.1:1/b")
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgconn.ConnectConfig(t.Context(), nobody)
	if got := ExplainConnect(fmt.Errorf("prune: %w", err)); !errors.Is(got, ErrUnreachable) || !strings.Contains(got.Error(), `connect as "a" to database "b": `) {
		t.Errorf("nobody listens: %v", got)
	}
	refusal := &pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"}
	_, err = pgconn.ConnectConfig(t.Context(), refuser(t, "db", refusal))
	if got := ExplainConnect(err); !errors.Is(got, ErrAccess) {
		t.Errorf("wrong password: %v", got)
	}
	refusal = &pgproto3.ErrorResponse{Severity: "FATAL", Code: "55000", Message: "the database does not accept connections"}
	_, err = pgconn.ConnectConfig(t.Context(), refuser(t, "db", refusal))
	if _, ok := errors.AsType[*pgconn.ConnectError](ExplainConnect(err)); !ok {
		t.Errorf("another cause: %v", ExplainConnect(err))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pgconn.ConnectConfig(ended, nobody)
	if got := ExplainConnect(err); !errors.Is(got, context.Canceled) || errors.Is(got, ErrUnreachable) {
		t.Errorf("given up: %v", got)
	}
	if other := ExplainConnect(errors.New("other")); other.Error() != "other" {
		t.Error("another error is changed")
	}
}
