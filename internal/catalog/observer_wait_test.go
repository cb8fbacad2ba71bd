package catalog

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A fast shutdown ends a session that is still starting with another code than it rejects the next one with.
func TestObserverWhoseSessionEndsWhileItStarts(t *testing.T) {
	cfg, err := pgconn.ParseConfig("host=db user=cdc sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	codes := []string{adminShutdown, cannotConnectNow}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		code := codes[0]
		codes = codes[1:]
		go func() { // ends with the connection
			defer theirs.Close()
			server := pgproto3.NewBackend(theirs, theirs)
			if _, err := server.ReceiveStartupMessage(); err != nil {
				return
			}
			server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code})
			_ = server.Flush()
		}()
		return ours, nil
	}
	o := Observe(replication.Config{Conn: cfg}, nil)
	if err := o.Wait(t.Context()); !errors.Is(err, replication.ErrServerStopping) || len(codes) > 0 {
		t.Errorf("Wait: %v, not used: %q", err, codes)
	}
}
