package debezium

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// serveNoTLS runs a server that refuses TLS, and every session with an error. It returns its address.
func serveNoTLS(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if message, err := backend.ReceiveStartupMessage(); err == nil {
				if _, ok := message.(*pgproto3.SSLRequest); ok {
					_, _ = conn.Write([]byte("N"))
				} else {
					backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28000", Message: "the session is refused"})
					_ = backend.Flush()
				}
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// With sslmode=prefer, Ask finds out whether the server of the connector has TLS. With require, or for a server that the
// user names, it keeps to it.
func TestAskWithoutTLS(t *testing.T) {
	address := serveNoTLS(t)
	for _, tt := range []struct{ mode, dsn, want string }{
		{"", "", "the session is refused"},
		{"prefer", "", "the session is refused"},
		{"require", "", "server refused TLS"},
		{"prefer", "host=db.example.com user=u dbname=d sslmode=require", "server refused TLS"},
	} {
		in := &Input{}
		for key, value := range map[string]string{"database.hostname": "db.example.com", "database.user": "u", "database.dbname": "d", "database.sslmode": tt.mode} {
			if value != "" {
				in.add(key, key, value)
			}
		}
		_, conn, err := Ask(t.Context(), in, tt.dsn, func(dsn string) (*pgx.ConnConfig, error) {
			cfg, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "source.dsn", Value: dsn, Flag: "--dsn"}}})
			if err != nil {
				return nil, err
			}
			conn, err := cfg.Postgres()
			if err != nil {
				return nil, err
			}
			conn.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
			conn.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			return conn, nil
		})
		if err == nil || !strings.Contains(err.Error(), tt.want) || conn == nil || conn.Host != "db.example.com" {
			t.Errorf("sslmode %q, dsn %q: %v, want %s", tt.mode, tt.dsn, err, tt.want)
		}
	}
}

// What prefer becomes is what the server takes, if the database was read.
func TestPrefer(t *testing.T) {
	outbox := tableName{"public", "outbox"}
	tables := []liveTable{{name: outbox, root: outbox, leaf: true, columns: []string{"id", "aggregateid", "aggregatetype", "payload"}}}
	for want, live := range map[string]*Live{
		"sslmode=require: if the server has no TLS, write sslmode=disable in the line source.dsn": nil,
		"because this server has TLS":    {encrypted: true, tables: tables},
		"because this server has no TLS": {tables: tables, plaintext: true},
	} {
		result := imported(t, "database.hostname=db.example.com", false, Options{Live: live})
		mode := "sslmode=require"
		if live != nil && live.plaintext {
			mode = "sslmode=disable"
		}
		if !strings.Contains(string(result.YAML), mode) {
			t.Errorf("%s:\n%s", want, result.YAML)
		}
		found := false
		for _, f := range result.Report.findings {
			found = found || f.key == "database.sslmode (default)" && strings.Contains(f.text, want)
		}
		if !found {
			t.Errorf("%s: %v", want, result.Report.findings)
		}
	}
}
