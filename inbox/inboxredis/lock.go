package inboxredis

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A lock is a key that expires. Its value is the session that has it.
type lock struct {
	client redis.UniversalClient
	key    string
	owner  string
	ttl    time.Duration
}

func lockOf(cfg Config, stream string) lock {
	return lock{client: cfg.Client, key: lockKey(stream, cfg.Group), owner: rand.Text(), ttl: cfg.LockTTL}
}

// lockKey returns a key that a Redis cluster has in the hash slot of the stream:
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func lockKey(stream, group string) string {
	if _, rest, ok := strings.Cut(stream, "{"); ok && strings.Index(rest, "}") > 0 {
		return stream + ":" + group + ":inbox_lock"
	}
	return "{" + stream + "}:" + group + ":inbox_lock"
}

//nolint:gochecknoglobals // never change
var (
	renewLock   = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	releaseLock = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func (l lock) acquire(ctx context.Context) (bool, error) {
	switch err := l.client.SetArgs(ctx, l.key, l.owner, redis.SetArgs{Mode: "NX", TTL: l.ttl}).Err(); {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.Nil):
		return l.renew(ctx) // an earlier attempt had no response
	default:
		return false, err
	}
}

// renew reports whether the session still has the lock.
func (l lock) renew(ctx context.Context) (bool, error) {
	n, err := renewLock.Run(ctx, l.client, []string{l.key}, l.owner, l.ttl.Milliseconds()).Int()
	return n == 1, err
}

// release makes the lock free for another instance. If that fails, it expires.
func (l lock) release(ctx context.Context) {
	_ = releaseLock.Run(ctx, l.client, []string{l.key}, l.owner).Err()
}
