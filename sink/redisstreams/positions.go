package redisstreams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A positionStore is a [sink.PositionStore] in a hash. The field of a value is the name, a slash and the key. The value
// follows the number of the write, by which Read orders values. A positionStore has connections of its own, so it neither waits
// for records nor delays them.
type positionStore struct {
	client     *client
	sink       *redisSink
	hash, name string
	log        *slog.Logger
}

// The fields of a name that are no values: the number of the last write, and the owner.
const (
	counterField = "#"
	ownerField   = "owner"
)

// OpenPositions implements [sink.PositionOpener]. It writes to the hash, so that a missing privilege is detected.
func (s *redisSink) OpenPositions(ctx context.Context, hash, name string) (sink.PositionStore, error) {
	p := &positionStore{client: newClient(s.cfg), sink: s, hash: hash, name: name, log: s.log.With(slog.String("positions", hash))}
	if err := p.Post(ctx, "#test", nil); err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = append(s.stores, p)
	return p, nil
}

// Read implements [sink.PositionStore].
func (p *positionStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	return readPositions(ctx, streams{client: p.client, stats: p.sink.stats, log: p.log}, p.hash, p.name)
}

// ReadPositions implements [sink.PositionReader].
func (r *reader) ReadPositions(ctx context.Context, hash, name string) ([]sink.StoredValue, error) {
	return readPositions(ctx, r.streams, hash, name)
}

// readPositions returns the values of a name in a hash, in the order in which they were stored.
func readPositions(ctx context.Context, s streams, hash, name string) ([]sink.StoredValue, error) {
	var fields map[string]string
	err := lane.Retry(ctx, s.stats, s.log, func(ctx context.Context) error {
		return s.client.attempt(ctx, func() (err error) {
			fields, err = s.client.HGetAll(ctx, hash).Result()
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("hash %s: %w", hash, err)
	}
	type numbered struct {
		sink.StoredValue

		number uint64
	}
	var values []numbered
	for field, stored := range fields {
		key, ok := strings.CutPrefix(field, name+"/")
		if !ok || !sink.IsStoreKey(key) {
			continue
		}
		number, value, ok := strings.Cut(stored, " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		place := fmt.Sprintf("hash %s, field %s", hash, field)
		values = append(values, numbered{sink.StoredValue{Key: key, Value: []byte(value), Place: place}, n})
	}
	slices.SortFunc(values, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	result := make([]sink.StoredValue, len(values))
	for i := range values {
		result[i] = values[i].StoredValue
	}
	return result, nil
}

// Post implements [sink.PositionStore].
func (p *positionStore) Post(ctx context.Context, key string, value []byte) error {
	return p.retry(ctx, func() error { return p.call(ctx, key, "", 0, value) })
}

// An owner is the [sink.Owner] of the values of a relay.
type owner struct {
	store *positionStore
	id    string

	mu      sync.Mutex
	written uint64 // number of writes
}

// Own implements [sink.PositionStore]. Each attempt has an id of its own, so that a late one shuts out the owner instead of making
// it the newest one again.
func (p *positionStore) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{store: p}
	return o, p.retry(ctx, func() error {
		o.id = uuid.NewString()
		return p.call(ctx, "", o.id, 0, nil)
	})
}

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	o.mu.Lock()
	o.written++
	number := o.written
	o.mu.Unlock()
	err := o.store.retry(ctx, func() error { return o.store.call(ctx, key, o.id, number, value) })
	if err != nil && ctx.Err() == nil && !errors.Is(err, sink.ErrFatal) && !errors.Is(err, sink.ErrSuperseded) {
		return fmt.Errorf("%w: %w", errFatal, err)
	}
	return err
}

// retry calls f until it succeeds or ctx ends.
func (p *positionStore) retry(ctx context.Context, f func() error) error {
	err := lane.Retry(ctx, p.sink.stats, p.log, func(ctx context.Context) error { return p.client.attempt(ctx, f) })
	if err != nil {
		return fmt.Errorf("hash %s: %w", p.hash, err)
	}
	return nil
}

// call runs the script, and waits for replicas like the records.
func (p *positionStore) call(ctx context.Context, key, owner string, number uint64, value []byte) error {
	field := func(key string) string { return p.name + "/" + key }
	args := []any{1, p.hash, field(key), field(counterField), field(ownerField), owner, number, value}
	node, err := p.client.node(ctx, p.hash)
	if err != nil {
		return err
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	done, err := conn.Do(ctx, slices.Concat([]any{"evalsha", positionScript.hash}, args)...).Int()
	if err != nil && redis.HasErrorPrefix(err, errNoScript) {
		done, err = conn.Do(ctx, slices.Concat([]any{"eval", positionScript.source}, args)...).Int()
	}
	if err != nil {
		if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || !isReply(err) {
			p.client.reload(ctx)
		}
		return err
	}
	if done < 0 {
		return fmt.Errorf("%w: the positions have another owner", sink.ErrSuperseded)
	}
	wait := p.sink.cfg.Wait
	if wait.Replicas == 0 {
		return nil
	}
	n, err := conn.Wait(ctx, wait.Replicas, wait.Timeout).Result()
	if err == nil && int(n) < wait.Replicas {
		return &codeError{explain("WAIT")}
	}
	return err
}

// CheckOrder implements [sink.PositionStore].
func (p *positionStore) CheckOrder(context.Context) error {
	return fmt.Errorf("%w: Redis does not order writers", errors.ErrUnsupported)
}
