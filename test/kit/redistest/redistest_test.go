package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// A server keeps its port, and the data that it has written to disk, when it is killed and restarted.
func TestRestart(t *testing.T) {
	s := redistest.Start(t, redistest.Config{
		Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"},
		Users:    map[string]string{"writer": ">secret ~a:* +set"},
	})
	ctx := t.Context()
	writer := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "writer", Password: "secret"})
	defer writer.Close()
	if err := writer.Set(ctx, "a:1", "x", 0).Err(); err != nil {
		t.Error(err)
	}
	if err := writer.Set(ctx, "b:1", "x", 0).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("SET of a key that the user may not write: %v", err)
	}
	if err := s.Kill(ctx); err != nil || s.Running() {
		t.Fatalf("Kill: %v", err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Admin().Get(ctx, "a:1").Result(); got != "x" {
		t.Errorf("%q after a restart: %v", got, err)
	}
}

func TestTLS(t *testing.T) {
	s := redistest.Start(t, redistest.Config{TLS: true})
	if err := s.Admin().Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	plain := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer plain.Close()
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("the server accepts a connection without TLS")
	}
}

// When the primary is killed, the Sentinel promotes the replica, which has what WAIT has confirmed.
func TestFailover(t *testing.T) {
	f := redistest.StartFailover(t, redistest.Config{})
	ctx := t.Context()
	if err := f.Primary.Admin().Set(ctx, "k", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Primary.Admin().Wait(ctx, 1, 0).Result(); n != 1 {
		t.Fatalf("%d replicas: %v", n, err)
	}
	if err := f.Primary.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	f.AwaitPromotion(t)
	if got, err := f.Replica.Admin().Get(ctx, "k").Result(); got != "x" {
		t.Errorf("%q: %v", got, err)
	}
}

// A key moves with its slot. Meanwhile the old node redirects its clients.
func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Config{})
	ctx := t.Context()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1]})
	defer client.Close()
	if err := client.Set(ctx, "k", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	from := c.Owner(t, "k")
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	c.Move(t, "k", to, func(step int) {
		if step == 2 {
			if err := from.Admin().Get(ctx, "k").Err(); !redis.HasErrorPrefix(err, "ASK") {
				t.Errorf("the old node: %v", err)
			}
		}
		if got, err := client.Get(ctx, "k").Result(); got != "x" {
			t.Errorf("step %d: %q: %v", step, got, err)
		}
	})
	if got, err := to.Admin().Get(ctx, "k").Result(); got != "x" || c.Owner(t, "k") != to {
		t.Errorf("after the move: %q: %v", got, err)
	}
}
