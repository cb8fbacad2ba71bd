package redisstreams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// The password for Sentinels is asked for each connection, and a wrong one is no access.
func TestSentinelRotation(t *testing.T) {
	f := redistest.StartFailover(t, redistest.Config{})
	ctx := sinktest.Context(t)
	do := func(s *redistest.Server, args ...any) {
		t.Helper()
		if err := s.Admin().Do(ctx, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	do(f.Sentinel, "acl", "setuser", "relay", "on", ">one", "+sentinel", "+ping", "+subscribe", "allchannels")
	var password atomic.Value
	password.Store("wr0ng")
	cfg := Config{Addrs: []string{f.Sentinel.Addr()}, CreateStreams: true, Sentinel: &Sentinel{
		Primary:     f.Name,
		Credentials: func(context.Context) (string, string, error) { return "relay", password.Load().(string), nil },
	}}
	_, err := cfg.Open(ctx, sinktest.NewJournal().Logger())
	if !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), "Sentinel") || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("Open with a wrong password: %v", err)
	}
	password.Store("one")
	s := openSink(t, cfg)
	send(t, s, event("orders", 1, 100, 0))

	do(f.Sentinel, "acl", "setuser", "relay", "resetpass", ">two")
	do(f.Sentinel, "client", "kill", "user", "relay")
	do(f.Primary, "client", "kill", "type", "normal")
	password.Store("two")
	send(t, s, event("orders", 2, 200, 0))
	if got := payloads(t, f.Primary.Admin(), "orders"); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the stream has %s", got)
	}
}
