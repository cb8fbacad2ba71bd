package catalog

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Orphaned reports whether the slot is left from when this server, now a standby, was the primary. Postgres creates no
// failover slots on a standby, except for copies of the primary's.
func (c *State) Orphaned() bool {
	return c.InRecovery && c.Slot != nil && c.Slot.Failover && !c.Slot.Synced
}

// DropSlot returns the statement that drops a slot.
func DropSlot(slot string) string {
	return "SELECT pg_drop_replication_slot(" + replication.QuoteLiteral(slot) + ")"
}

// BlockedStandbys returns the addresses of the standbys among the servers of conn that cannot synchronize the primary's
// failover slot, because they have a slot of this name that is no copy of it. It ignores servers that do not respond
// before ctx ends, and does nothing if conn has one address only.
func BlockedStandbys(ctx context.Context, conn *pgconn.Config, slot string) []string {
	var servers []server
	for _, host := range splitHosts(conn) {
		servers = append(servers, splitAddresses(ctx, host)...)
	}
	if len(servers) < 2 {
		return nil
	}
	blocked := make([]string, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			if isBlocked(ctx, s.conn, slot) {
				blocked[i] = s.address
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(blocked, func(address string) bool { return address == "" })
}

// isBlocked reports whether the server is a standby with such a slot.
func isBlocked(ctx context.Context, host *pgconn.Config, slot string) bool {
	conn, err := replication.Connect(ctx, host)
	if err != nil {
		return false
	}
	defer replication.Disconnect(ctx, conn)
	// pg_replication_slots has the column synced from 17 on.
	found, err := queryOne(ctx, conn, pgx.RowTo[bool], "look for the slot", `
		SELECT pg_catalog.pg_is_in_recovery() AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots s
			WHERE slot_name = $1 AND pg_catalog.to_jsonb(s) ->> 'synced' = 'false')`, slot)
	return err == nil && *found
}

// splitHosts returns the settings for a connection to each server of conn. Such a connection ignores
// target_session_attrs.
func splitHosts(conn *pgconn.Config) []*pgconn.Config {
	var hosts []*pgconn.Config
	for _, a := range append([]*pgconn.FallbackConfig{{Host: conn.Host, Port: conn.Port, TLSConfig: conn.TLSConfig}}, conn.Fallbacks...) {
		i := slices.IndexFunc(hosts, func(c *pgconn.Config) bool { return c.Host == a.Host && c.Port == a.Port })
		if i >= 0 { // again, with or without TLS
			hosts[i].Fallbacks = append(hosts[i].Fallbacks, a)
			continue
		}
		host := readOnly(conn, "status")
		host.ValidateConnect = nil
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = a.Host, a.Port, a.TLSConfig, nil
		hosts = append(hosts, host)
	}
	return hosts
}

// A server is one address of a connection string.
type server struct {
	conn    *pgconn.Config
	address string // host:port
}

// splitAddresses returns a server for each address of host, a result of splitHosts.
func splitAddresses(ctx context.Context, host *pgconn.Config) []server {
	port := strconv.Itoa(int(host.Port))
	var addresses []string
	if !filepath.IsAbs(host.Host) { // no Unix socket
		addresses, _ = host.LookupFunc(ctx, host.Host)
	}
	if len(addresses) < 2 {
		return []server{{host, net.JoinHostPort(host.Host, port)}}
	}
	var servers []server
	for _, address := range addresses {
		conn := host.Copy() // with the name of the host, which its certificate has
		conn.LookupFunc = func(context.Context, string) ([]string, error) { return []string{address}, nil }
		servers = append(servers, server{conn, net.JoinHostPort(address, port)})
	}
	return servers
}
