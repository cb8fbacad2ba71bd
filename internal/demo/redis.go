package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

const (
	redisEntries = 100_000 // of a stream that are kept, which limits the memory of a long demo
	redisPage    = 1000    // entries of a read
	redisBlock   = 200 * time.Millisecond
)

func redisKind() kind {
	return kind{
		name: "redis_streams", title: "Redis Streams", from: "redis-server, if it is installed", connects: true,
		flags: "--redis host:6379", page: "docs/redis-streams.md", open: openRedis,
	}
}

func openRedis(ctx context.Context, r *rig) (*broker, error) {
	b := &broker{addrs: r.opts.Brokers, details: given(r.opts), names: redisstreams.Names{}, topic: r.names.prefix + route}
	if len(b.addrs) == 0 {
		srv, err := redistest.Launch(ctx, redistest.Config{Settings: map[string]string{
			"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction",
		}})
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return nil, notInstalled("redis-server", r.kind, "6379")
		case err != nil:
			return nil, fmt.Errorf("start redis-server: %w", err)
		}
		r.later(func(context.Context) error { return srv.Stop() })
		b.addrs = []string{srv.Addr()}
		b.details = "a private server on " + b.addrs[0]
	}
	logging.Disable() // the client also returns its errors
	client := redis.NewClient(&redis.Options{Addr: b.addrs[0], ClientName: clientID, ContextTimeoutEnabled: true})
	r.later(func(context.Context) error { return client.Close() })
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	if err := client.Ping(limited).Err(); err != nil {
		return nil, unreachable(b, err)
	}
	streams := b.destinations()
	r.laterAt(len(r.opts.Brokers) > 0, func(ctx context.Context) error {
		if err := client.Del(ctx, streams...).Err(); err != nil {
			return fmt.Errorf("delete the streams %q: %w", streams, err)
		}
		return nil
	})
	b.sink = redisstreams.Config{Addrs: b.addrs, CreateStreams: true, Trim: redisstreams.Trim{MaxLen: redisEntries}}
	b.consume = func(ctx context.Context, take func(message)) error { return readStreams(ctx, client, streams, take) }
	return b, nil
}

func readStreams(ctx context.Context, client *redis.Client, streams []string, take func(message)) error {
	last := slices.Repeat([]string{"0"}, len(streams)) // id of the newest entry that was read
	for n := int64(0); ; {
		found, err := client.XRead(ctx, &redis.XReadArgs{Streams: slices.Concat(streams, last), Count: redisPage, Block: redisBlock}).Result()
		switch {
		case errors.Is(err, redis.Nil): // no new entry
			continue
		case err != nil:
			return fmt.Errorf("read %q: %w", streams, err)
		}
		for _, s := range found {
			for _, e := range s.Messages {
				n++
				field := func(name string) string { v, _ := e.Values[name].(string); return v }
				take(message{destination: s.Stream, key: field("key"), id: field(idHeader), kind: field(typeHeader), offset: n})
				last[slices.Index(streams, s.Stream)] = e.ID
			}
		}
	}
}
