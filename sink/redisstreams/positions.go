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
	"github.com/outbox-cdc/outbox-cdc/sink/keyed"
)

// A positionStore is a [sink.PositionStore] in a hash. The field of a value is the name, a slash and the writer. The value
// follows the number of the write, by which Read orders values. The field "name/#" has the number of the last write. A
// positionStore has connections of its own, so it neither waits for records nor delays them.
type positionStore struct {
	client     *client
	sink       *redisSink
	hash, name string
	log        *slog.Logger
	session    string

	mu      sync.Mutex
	written uint64 // number of writes of the session
}

// counterWriter is the writer of the field that has the number of the last write. It is no UUID.
const counterWriter = "#"

// OpenPositions implements [sink.Sink]. It writes to the hash, so that a missing privilege is detected.
func (s *redisSink) OpenPositions(ctx context.Context, hash, name string) (sink.PositionStore, error) {
	p := &positionStore{
		client: newClient(s.cfg), sink: s, hash: hash, name: name, session: uuid.NewString(),
		log: s.log.With(slog.String("positions", hash)),
	}
	if err := p.store(ctx, counterWriter+counterWriter, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("hash %s: %w", hash, err), p.client.Close())
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
	err := keyed.Retry(ctx, s.stats, s.log, func(ctx context.Context) error {
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
		writer, ok := strings.CutPrefix(field, name+"/")
		if !ok || writer != "" && uuid.Validate(writer) != nil {
			continue
		}
		number, value, ok := strings.Cut(stored, " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			continue
		}
		place := fmt.Sprintf("hash %s, field %s", hash, field)
		values = append(values, numbered{sink.StoredValue{Writer: writer, Value: []byte(value), Place: place}, n})
	}
	slices.SortFunc(values, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	result := make([]sink.StoredValue, len(values))
	for i := range values {
		result[i] = values[i].StoredValue
	}
	return result, nil
}

// Write implements [sink.PositionStore].
func (p *positionStore) Write(ctx context.Context, writer string, value []byte) error {
	err := p.store(ctx, writer, value)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && !errors.Is(err, sink.ErrFatal):
		err = fmt.Errorf("%w: %w", errFatal, err)
	}
	return fmt.Errorf("hash %s: %w", p.hash, err)
}

// store stores or removes a value.
func (p *positionStore) store(ctx context.Context, writer string, value []byte) error {
	p.mu.Lock()
	p.written++
	number := p.written
	p.mu.Unlock()
	args := []any{1, p.hash, p.name + "/" + writer, p.name + "/" + counterWriter, p.session, number, value}
	return keyed.Retry(ctx, p.sink.stats, p.log, func(ctx context.Context) error {
		return p.client.attempt(ctx, func() error { return p.call(ctx, args) })
	})
}

// call runs the script, and waits for replicas like the records.
func (p *positionStore) call(ctx context.Context, args []any) error {
	node, err := p.client.node(ctx, p.hash)
	if err != nil {
		return err
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	err = conn.Do(ctx, slices.Concat([]any{"evalsha", positionScript.hash}, args)...).Err()
	if err != nil && redis.HasErrorPrefix(err, errNoScript) {
		err = conn.Do(ctx, slices.Concat([]any{"eval", positionScript.source}, args)...).Err()
	}
	if err != nil {
		if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || !isReply(err) {
			p.client.reload(ctx)
		}
		return err
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

// NextIdentity implements [sink.PositionStore]. Redis does not order identities.
func (p *positionStore) NextIdentity(context.Context, ...[]byte) ([]byte, error) { return nil, nil }

// CheckOrder implements [sink.PositionStore].
func (p *positionStore) CheckOrder(context.Context) error {
	return fmt.Errorf("%w: Redis does not order writers", errors.ErrUnsupported)
}
