package catalog

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A standby with a slot of its own is found, also if one host name leads to it and to the primary server.
func TestBlockedStandbys(t *testing.T) {
	t.Parallel()
	pgtest.NewestTwo(t, func(t *testing.T, shared *pgserver.Server) {
		if shared.Install().Major < 17 {
			return
		}
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir})
		s := newSource(t, srv)
		standby := pgtest.Standby(t, srv, srv.Addr(), s.Name, nil)
		conn := s.cfg.Conn
		if got := BlockedStandbys(t.Context(), conn, s.cfg.Slot); got != nil {
			t.Errorf("of the primary server alone: %q", got)
		}
		conn.Host, conn.Port, conn.Fallbacks = "db.example", 5432, nil
		conn.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1", "192.0.2.2"}, nil }
		conn.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			to := map[string]string{"192.0.2.1:5432": srv.Addr(), "192.0.2.2:5432": standby.Addr()}[address]
			return new(net.Dialer).DialContext(ctx, network, to)
		}
		if got := BlockedStandbys(t.Context(), conn, s.cfg.Slot); len(got) > 0 {
			t.Errorf("of a standby without a slot: %q", got)
		}
		other := s.cfg.Conn.Copy()
		other.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.2"}, nil }
		c, err := replication.Connect(t.Context(), replication.Ordinary(other))
		if err != nil {
			t.Fatal(err)
		}
		defer replication.Disconnect(t.Context(), c)
		if _, err := c.Exec(t.Context(), "SELECT pg_create_physical_replication_slot('"+s.cfg.Slot+"')").ReadAll(); err != nil {
			t.Fatal(err)
		}
		if got := BlockedStandbys(t.Context(), conn, s.cfg.Slot); !slices.Equal(got, []string{"192.0.2.2:5432"}) {
			t.Errorf("of a standby with a slot of its own: %q", got)
		}
	})
}
