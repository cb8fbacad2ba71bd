package debezium

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
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

// With sslmode=prefer, Ask finds out whether the server has TLS. With require, it keeps to it.
func TestAskWithoutTLS(t *testing.T) {
	address := serveNoTLS(t)
	for mode, want := range map[string]string{"": "the session is refused", "prefer": "the session is refused", "require": "server refused TLS"} {
		in := &Input{}
		if mode != "" {
			in.add("database.sslmode", "database.sslmode", mode)
		}
		conn, err := pgx.ParseConfig("host=db.example.com user=u dbname=d sslmode=require")
		if err != nil {
			t.Fatal(err)
		}
		conn.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		conn.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		if _, err := Ask(t.Context(), in, conn); err == nil || !strings.Contains(err.Error(), want) || (conn.TLSConfig == nil) != (mode != "require") {
			t.Errorf("sslmode %q: %v, want %s; TLS %t", mode, err, want, conn.TLSConfig != nil)
		}
	}
}

// What prefer becomes is what the server takes, if the database was read.
func TestPrefer(t *testing.T) {
	for want, live := range map[string]*Live{
		"sslmode=require: if the server has no TLS, write sslmode=disable in the line source.dsn": nil,
		"because this server has TLS":    {tables: []liveTable{{name: tableName{"public", "outbox"}, root: tableName{"public", "outbox"}, leaf: true}}},
		"because this server has no TLS": {tables: []liveTable{{name: tableName{"public", "outbox"}, root: tableName{"public", "outbox"}, leaf: true}}, plaintext: true},
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
