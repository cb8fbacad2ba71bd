package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
)

// redisStreams is Redis. Each measurement has streams of its own, because the relay's script drops rows that a stream has.
type redisStreams struct{ cfg redisstreams.Config }

func redisError(doing string, err error) error {
	return failed(doing, err, "Check sink.redis_streams.addresses, and that its user may read, write and delete keys named "+measure.TopicPrefix+"*.")
}

func (b redisStreams) connect(ctx context.Context) (redis.UniversalClient, error) {
	options := &redis.UniversalOptions{
		Addrs: b.cfg.Addrs, DB: b.cfg.Database, IsClusterMode: b.cfg.Cluster, Protocol: 2, ContextTimeoutEnabled: true,
		CredentialsProviderContext: b.cfg.Credentials, DisableIdentity: true,
	}
	if s := b.cfg.Sentinel; s != nil {
		options.MasterName = s.Primary
		if s.Credentials != nil {
			user, password, err := s.Credentials(ctx)
			if err != nil {
				return nil, err
			}
			options.SentinelUsername, options.SentinelPassword = user, password
		}
	}
	if b.cfg.TLS != nil {
		encryption, err := b.cfg.TLS()
		if err != nil {
			return nil, err
		}
		options.TLSConfig = encryption
	}
	client := redis.NewUniversalClient(options)
	ctx, cancel := context.WithTimeout(ctx, measure.ContactTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(redisError("reach a server", err), client.Close())
	}
	return client, nil
}

// Library implements Broker.
func (redisStreams) Library() string { return "go-redis, XADD in pipelines" }

// List implements measure.Broker.
func (b redisStreams) List(ctx context.Context) ([]string, error) {
	client, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := keysOf(ctx, client, measure.TopicPrefix)
	if err != nil {
		return nil, redisError("look for leftovers", err)
	}
	return all, nil
}

// keysOf returns the keys that begin with a prefix.
func keysOf(ctx context.Context, client redis.UniversalClient, prefix string) ([]string, error) {
	var mu sync.Mutex
	var all []string
	scan := func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found := node.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for found.Next(ctx) {
			all = append(all, found.Val())
		}
		return found.Err()
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Client:
		err = scan(ctx, c)
	}
	return all, err
}

// DropCommand implements measure.Broker.
func (redisStreams) DropCommand(prefix string) string {
	return fmt.Sprintf("redis-cli --scan --pattern '%s*' | xargs -n 1 redis-cli unlink", name(prefix))
}

// Open implements measure.Broker.
func (b redisStreams) Open(ctx context.Context, l measure.Layout) (measure.Destinations, error) {
	client, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &redisKeys{client: client, layout: l}, nil
}

type redisKeys struct {
	client redis.UniversalClient
	layout measure.Layout
	made   int
}

// Delete implements measure.Destinations.
func (k *redisKeys) Delete(ctx context.Context) error {
	left, err := keysOf(ctx, k.client, k.layout.Prefix)
	for _, key := range left {
		err = errors.Join(err, k.client.Unlink(ctx, key).Err())
	}
	return err
}

// Close implements measure.Destinations.
func (k *redisKeys) Close() { _ = k.client.Close() }

// Observe implements measure.Destinations. The streams do not exist yet.
func (k *redisKeys) Observe(context.Context) (measure.Stream, error) {
	k.made++
	prefix := fmt.Sprintf("%s%d.", k.layout.Prefix, k.made)
	s := &redisStream{keys: k, template: prefix + route, names: names(prefix+route, k.layout.Topics), last: make(map[string]string)}
	for _, n := range s.names {
		s.last[n] = "0-0"
	}
	return s, nil
}

// redisCount is the maximum number of entries of a stream in a response.
const redisCount = 5000

type redisStream struct {
	keys     *redisKeys
	template string
	names    []string
	last     map[string]string // id of the last entry that was read, by stream
	count    int64             // of entries
}

// Names implements measure.Stream.
func (s *redisStream) Names() []string { return s.names }

// Settings implements measure.Stream.
func (s *redisStream) Settings() map[string]any {
	return map[string]any{"outbox.topic": s.template, "position_topic": s.keys.layout.Prefix + "positions"}
}

// Poll implements measure.Stream.
func (s *redisStream) Poll(ctx context.Context, take measure.Take) error {
	from := slices.Clone(s.names)
	for _, n := range s.names {
		from = append(from, s.last[n])
	}
	read, err := s.keys.client.XRead(ctx, &redis.XReadArgs{Streams: from, Count: redisCount, Block: pollTime}).Result()
	now := time.Now()
	switch {
	case errors.Is(err, redis.Nil), ctx.Err() != nil:
		return nil //nolint:nilerr // neither the end of the wait nor that of ctx is an error
	case err != nil:
		return redisError("read a stream", err)
	}
	for _, stream := range read {
		for _, m := range stream.Messages {
			s.last[stream.Stream] = m.ID
			s.count++
			key, _ := m.Values["key"].(string)
			payload, _ := m.Values["payload"].(string)
			take(now, delivery.Coordinates{Topic: stream.Stream, Offset: s.count}, []byte(key), []byte(payload))
		}
	}
	return nil
}

// End implements measure.Stream.
func (s *redisStream) End(ctx context.Context) (func() bool, error) {
	ends := maps.Clone(s.last)
	for _, n := range s.names {
		last, err := s.keys.client.XRevRangeN(ctx, n, "+", "-", 1).Result()
		if err != nil {
			return nil, redisError("find the end of a stream", err)
		}
		if len(last) > 0 {
			ends[n] = last[0].ID
		}
	}
	return func() bool { return maps.Equal(s.last, ends) }, nil
}

// Close implements measure.Stream.
func (s *redisStream) Close(ctx context.Context) error {
	var errs []error
	for _, n := range s.names {
		errs = append(errs, s.keys.client.Unlink(ctx, n).Err())
	}
	return errors.Join(errs...)
}

// Producer implements Broker.
func (b redisStreams) Producer(ctx context.Context) (measure.Producer, error) {
	client, err := b.connect(ctx)
	return redisProducer{client}, err
}

// A redisProducer sends the XADDs of a call in one pipeline, and waits for their responses.
type redisProducer struct{ client redis.UniversalClient }

// Publish implements measure.Producer.
func (p redisProducer) Publish(ctx context.Context, messages []measure.Message) error {
	if len(messages) == 0 {
		return nil
	}
	_, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range messages {
			m := &messages[i]
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: m.Topic, Values: []any{
				"timestamp", time.Now().UnixMilli(), "key", m.Key, "payload", m.Payload, "id", m.ID, "eventType", m.Type,
			}})
		}
		return nil
	})
	return err
}

// Wait implements measure.Producer.
func (redisProducer) Wait(context.Context) error { return nil }
