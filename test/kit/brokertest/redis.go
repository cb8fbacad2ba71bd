package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// Redis starts a server that writes to disk before it responds.
func Redis(t *testing.T) *Broker {
	t.Helper()
	server := redistest.Start(t, redistest.Config{Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
	r := &redisReader{client: server.Admin(), stream: redistest.UniqueName(t), last: "0"}
	return &Broker{
		Addr: server.Addr(), Topic: r.stream, Process: server, Once: true, Collect: r.collect,
		Config: func(addr string) string {
			return fmt.Sprintf("position_topic: outbox.positions\nsink: {redis_streams: {addresses: [%q]}}", addr)
		},
	}
}

// A redisReader reads a stream from its beginning. It continues after restarts of the server.
type redisReader struct {
	client *redis.Client
	stream string

	mu   sync.Mutex
	last string // id of the last entry
	read int64  // number of entries
}

func (r *redisReader) collect(t *testing.T, f Collect) rig.CatchUp {
	t.Helper()
	inBackground(t, func(ctx context.Context) { _, _ = r.page(ctx, f) })
	return func(ctx context.Context) error {
		for {
			if n, err := r.page(ctx, f); err != nil || n == 0 {
				return err
			}
		}
	}
}

// page reads the next entries and returns their number.
func (r *redisReader) page(ctx context.Context, f Collect) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	entries, err := r.client.XRangeN(ctx, r.stream, "("+r.last, "+", 500).Result()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		text := func(name string) string { v, _ := e.Values[name].(string); return v }
		f(Arrival{Number: r.read, Key: []byte(text("key")), Value: []byte(text("payload")), Header: text})
		r.last = e.ID
		r.read++
	}
	return len(entries), nil
}
