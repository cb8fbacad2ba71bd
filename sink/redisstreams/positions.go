package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A positionStore is a [sink.PositionStore] in a hash. The field of a value is the name, a slash and the key. The value
// follows the number of the write, by which Read orders values.
type positionStore struct {
	*client

	hash, name string
}

// The fields of a name that are no values: the number of the last write, and the owner.
const (
	counterField = "#"
	ownerField   = "owner"
)

// OpenPositions implements [sink.PositionOpener]. It writes to the hash, so that a missing privilege is detected.
func (c *client) OpenPositions(ctx context.Context, hash, name string) (sink.PositionStore, error) {
	p := &positionStore{client: c, hash: hash, name: name}
	if err := p.Post(ctx, "#test", nil); err != nil {
		return nil, err
	}
	return p, nil
}

// Read implements [sink.PositionStore].
func (p *positionStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	return p.ReadPositions(ctx, p.hash, p.name)
}

// ReadPositions implements [sink.PositionReader].
func (c *client) ReadPositions(ctx context.Context, hash, name string) ([]sink.StoredValue, error) {
	var fields map[string]string
	err := c.retry(ctx, func(ctx context.Context) (err error) {
		fields, err = c.conns.HGetAll(ctx, hash).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hash %s: %w", hash, err)
	}
	values := make(map[uint64]sink.StoredValue)
	var others []sink.StoredValue
	for field, stored := range fields {
		n, value, ok := cutNumber(stored)
		if !ok {
			continue
		}
		v := sink.StoredValue{Value: []byte(value), Place: fmt.Sprintf("hash %s, field %s", hash, field)}
		if key, isOwn := strings.CutPrefix(field, name+"/"); isOwn && sink.IsStoreKey(key) {
			v.Key = key
			values[n] = v
		} else if other, ok := sink.CutPosition(field); ok {
			v.Key, v.Other = sink.PositionKey, other
			others = append(others, v)
		}
	}
	slices.SortFunc(others, func(a, b sink.StoredValue) int { return strings.Compare(a.Other, b.Other) })
	return append(sink.InOrder(values), others...), nil
}

// cutNumber returns the number of the write of a stored value, and the value. ok is false if it is none.
func cutNumber(stored string) (n uint64, value string, ok bool) {
	number, value, ok := strings.Cut(stored, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, value, ok && err == nil
}

// Post implements [sink.PositionStore].
func (p *positionStore) Post(ctx context.Context, key string, value []byte) error {
	return p.named(p.retry(ctx, func(ctx context.Context) error { return p.call(ctx, key, "", 0, value) }))
}

// An owner is the [sink.Owner] of the values of a relay.
type owner struct {
	store   *positionStore
	id      string
	written atomic.Uint64 // number of writes
}

// Own implements [sink.PositionStore]. Each attempt has an id of its own, so that a late one shuts out the owner instead of making
// it the newest one again.
func (p *positionStore) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{store: p}
	return o, p.update(ctx, func(ctx context.Context) error {
		o.id = uuid.NewString()
		return p.call(ctx, "", o.id, 0, nil)
	})
}

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	number := o.written.Add(1)
	return o.store.update(ctx, func(ctx context.Context) error { return o.store.call(ctx, key, o.id, number, value) })
}

// update calls f until it succeeds, for a relay that runs.
func (p *positionStore) update(ctx context.Context, f func(ctx context.Context) error) error {
	return p.RetryDenied(ctx, func(ctx context.Context) error {
		return p.named(p.conns.attempt(ctx, func() error { return f(ctx) }))
	})
}

// named adds the name of the hash to an error.
func (p *positionStore) named(err error) error {
	if err != nil {
		return fmt.Errorf("hash %s: %w", p.hash, err)
	}
	return nil
}

// call runs the script, and waits for replicas like the records.
func (p *positionStore) call(ctx context.Context, key, owner string, number uint64, value []byte) error {
	field := func(key string) string { return p.name + "/" + key }
	node, err := p.conns.node(ctx, p.hash)
	if err != nil {
		return err
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	done, err := positionScript.Run(ctx, conn, []string{p.hash}, field(key), field(counterField), field(ownerField), owner, number, value).Int()
	if err != nil {
		if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || !isReply(err) {
			p.conns.reload(ctx)
		}
		return err
	}
	switch done {
	case -1:
		return fmt.Errorf("%w: the positions have another owner", sink.ErrSuperseded)
	case -2:
		return errLost
	}
	wait := p.cfg.Wait
	if wait.Replicas == 0 {
		return nil
	}
	n, err := conn.Wait(ctx, wait.Replicas, wait.Timeout).Result()
	if err == nil && int(n) < wait.Replicas {
		return &codeError{explain("WAIT")}
	}
	return err
}

// errLost says that the owner is gone without a newer one.
var errLost = sink.NewError(sink.ErrSuperseded, "the positions have no owner any more: somebody has removed them, or the server has lost its data",
	`If the server has lost its data, the streams have lost their entries too: send those rows again with outbox-cdc replay --where '…' --dsn "$OPERATOR_DSN".`)

// CheckOrder implements [sink.PositionStore].
func (p *positionStore) CheckOrder(context.Context) error {
	return fmt.Errorf("%w: Redis does not order writers", errors.ErrUnsupported)
}
