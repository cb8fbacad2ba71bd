package replication

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Postgres must be able to shut down at any time. A WAL sender delays the shutdown until its client has confirmed
// everything or disconnects.
func TestServerCanShutDown(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		// Without an end of the stream, the shutdown would take that long.
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: map[string]string{senderTimeout: "1h"}})
		s := newSource(t, srv)

		t.Run("everything confirmed", func(t *testing.T) {
			r := s.start(t, 0, false)
			s.insert(t, 1, 10)
			<-r.commits
			shutDown(t, srv, r)
		})
		t.Run("nothing confirmed", func(t *testing.T) {
			r := s.start(t, 0, true)
			s.insert(t, 11, 20)
			<-r.commits
			shutDown(t, srv, r)
		})
	})
}

// shutDown starts a fast shutdown, closes the stream when the shutdown ends it, and starts the server again.
func shutDown(t *testing.T, srv *pgserver.Server, r *reader) {
	t.Helper()
	closed := make(chan error, 1)
	go func() {
		err := <-r.ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience())
		defer cancel()
		if err := r.stream.Close(ctx, pglogrepl.LSN(r.confirmed.Load())); err != nil {
			t.Errorf("Close: %v", err)
		}
		closed <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Fatalf("the server does not stop: %v", err)
	}
	if err := <-closed; !errors.Is(err, ErrServerStopping) {
		t.Errorf("Run: %v", err)
	} else {
		t.Logf("Run: %v", err)
	}
	if err := srv.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}
