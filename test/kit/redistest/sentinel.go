package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Failover is a primary with a replica and one Sentinel, which promotes the replica when the primary is down for two
// seconds.
type Failover struct {
	Primary, Replica *Server // by their first roles
	Sentinel         *Server
	Name             string // of the primary at the Sentinel
}

// StartFailover starts a primary, a replica and a Sentinel, and returns when the replica is in sync. cfg is for the first
// two. Without a full run, it skips the test.
func StartFailover(tb testing.TB, cfg Config) *Failover {
	tb.Helper()
	f := &Failover{Primary: Start(tb, cfg), Name: "outbox"}
	cfg.ReplicaOf = f.Primary
	f.Replica = Start(tb, cfg)
	f.AwaitReplica(tb)
	monitor := fmt.Sprintf("monitor %s 127.0.0.1 %d 1", f.Name, f.Primary.port.Number())
	f.Sentinel = start(tb, Config{Settings: map[string]string{
		"sentinel": strings.Join([]string{
			monitor, "down-after-milliseconds " + f.Name + " 2000", "failover-timeout " + f.Name + " 5000",
			"parallel-syncs " + f.Name + " 1",
		}, "\nsentinel "),
	}}, "--sentinel")
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: f.Sentinel.Addr()})
	defer func() { _ = sentinel.Close() }()
	await(tb, "the Sentinel to know the replica", func(ctx context.Context) bool {
		replicas, err := sentinel.Replicas(ctx, f.Name).Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok"
	})
	return f
}

// AwaitReplica blocks until the replica is connected to the primary and has its data.
func (f *Failover) AwaitReplica(tb testing.TB) {
	tb.Helper()
	await(tb, "the replica", func(ctx context.Context) bool {
		info, err := f.Replica.Admin().Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up") && f.Primary.Admin().Wait(ctx, 1, 0).Val() == 1
	})
}

// AwaitPromotion blocks until the replica is a primary, and the Sentinel names it.
func (f *Failover) AwaitPromotion(tb testing.TB) {
	tb.Helper()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: f.Sentinel.Addr()})
	defer func() { _ = sentinel.Close() }()
	await(tb, "the promotion", func(ctx context.Context) bool {
		addr, err := sentinel.GetMasterAddrByName(ctx, f.Name).Result()
		if err != nil || strings.Join(addr, ":") != f.Replica.Addr() {
			return false
		}
		info, err := f.Replica.Admin().Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	})
}

// Rejoin restarts the first primary, which was killed, as a replica of the promoted one.
func (f *Failover) Rejoin(tb testing.TB) {
	tb.Helper()
	if err := f.Primary.Restart(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	mustDo(tb, f.Primary, "REPLICAOF", "127.0.0.1", f.Replica.port.Number())
}
