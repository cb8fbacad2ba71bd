package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// redisRights are the ACL rules of docs/redis-streams.md for a relay whose streams begin with outbox.
const redisRights = "resetkeys resetchannels -@all ~outbox.* +ping +eval +evalsha +xadd +xrange +xinfo|stream +xlen +exists +hget +hset +hdel +hgetall +hlen +info +config|get"

// TestRelayOverRedis: a relay with the least rights delivers, and the stream has each event once.
func TestRelayOverRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{
		Settings: map[string]string{"appendonly": "yes", "appendfsync": "always"},
		Users:    map[string]string{"relay": ">s3cret " + redisRights},
	})
	password := filepath.Join(t.TempDir(), "password")
	rig.Must(t, os.WriteFile(password, []byte("s3cret\n"), 0o600))
	reader := &redisReader{client: server.Admin(), stream: "outbox.event.order", seen: make(map[string]int)}
	config := fmt.Sprintf("position_topic: outbox.positions\nsink: {redis_streams: {addresses: [%q], user: relay, password_file: %q}}", server.Addr(), password)
	relaysOver(t, rig.Broker{Topic: reader.stream, Config: config, Collect: reader.collect})
	for id, times := range reader.seen {
		if times > 1 {
			t.Errorf("event %s is in the stream %d times", id, times)
		}
	}
}

// A redisReader reads a stream from its beginning.
type redisReader struct {
	client *redis.Client
	stream string

	mu   sync.Mutex
	last string
	read int64
	seen map[string]int // by event id
}

func (r *redisReader) collect(t *testing.T, take func(rig.Received)) rig.CatchUp {
	t.Helper()
	r.last = "0"
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			if _, err := r.page(ctx, take); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			<-poll.C
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return func(ctx context.Context) error {
		for {
			if n, err := r.page(ctx, take); err != nil || n == 0 {
				return err
			}
		}
	}
}

// page reads the next entries and returns their number.
func (r *redisReader) page(ctx context.Context, take func(rig.Received)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := r.client.XRangeN(ctx, r.stream, "("+r.last, "+", 1000).Result()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		text := func(name string) string { v, _ := e.Values[name].(string); return v }
		ms, err := strconv.ParseInt(text("timestamp"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("entry %s: %w", e.ID, err)
		}
		r.seen[text("id")]++
		take(rig.Received{
			Offset: r.read, Key: []byte(text("key")), Value: []byte(text("payload")), ID: text("id"), Type: text("eventType"), Timestamp: time.UnixMilli(ms),
		})
		r.last = e.ID
		r.read++
	}
	return len(entries), nil
}
