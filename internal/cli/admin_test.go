package cli

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A relay that finds its port in use has an admin server as soon as the other process is gone.
func TestAdminServerWaitsForItsPort(t *testing.T) {
	t.Parallel()
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	page := &adminPage{server: admin.New(admin.Config{}, log), taken: other.Addr().String(), log: log}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		page.serve(ctx, func() relay.Stat { return relay.Stat{} })
	}()
	_ = other.Close()
	wait.For(t, "the admin server to respond", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+other.Addr().String()+"/livez", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	stop()
	<-ended
}
