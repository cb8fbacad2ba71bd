package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// A redisSink is the [sink.Sink] of Redis.
type redisSink struct {
	cfg    Config
	log    *slog.Logger
	stats  *lane.Stats
	client *client // for checks

	mu     sync.Mutex
	stores []*positionStore
}

// Open implements [sink.Broker].
func (c Config) Open(ctx context.Context, log *slog.Logger) (sink.Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	s := &redisSink{cfg: c, log: log, client: newClient(c)}
	options := lane.Options{
		Broker: strings.Join(c.Addrs, ","), WindowRecords: c.WindowRecords, WindowBytes: c.WindowBytes, PerDestination: true,
		RequestRecords: requestRecords, RequestBytes: requestBytes,
	}
	limit := c.MaxEntryBytes
	contact := lane.NewStats(options)
	err := lane.Retry(ctx, contact, log, func(ctx context.Context) error {
		return s.client.attempt(ctx, func() error {
			if err := s.client.Eval(ctx, "return 1", nil).Err(); err != nil {
				return err
			}
			if limit == 0 {
				limit = s.client.readLimit(ctx)
			}
			return nil
		})
	})
	if err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	options.Prepare = func(r *sink.Record) error { return checkSize(r, limit) }
	s.stats = lane.NewStats(options)
	return s, nil
}

// readLimit returns proto-max-bulk-len of a server, or its default if the user may not read it.
func (c *client) readLimit(ctx context.Context) int {
	const name = "proto-max-bulk-len"
	settings, err := c.ConfigGet(ctx, name).Result()
	if err != nil {
		return defaultEntryBytes
	}
	if limit, err := strconv.Atoi(settings[name]); err == nil && limit > 0 {
		return limit
	}
	return defaultEntryBytes
}

// checkSize returns a *sink.RecordError for a record that cannot be an entry. limit is the maximum size of an argument, and
// the record is the only one of its request.
func checkSize(r *sink.Record, limit int) error {
	size := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		size += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	const perItem = len(prefixHeader) + 5 // of a long string in MessagePack
	if encoded := size + perItem*(itemsOf(r)+6); encoded > limit {
		return &sink.RecordError{Size: size, Limit: limit, TooLarge: true, Reason: errors.New("larger than an entry may be (sink.redis_streams.max_entry_bytes, or proto-max-bulk-len of the server)")}
	}
	if len(r.Headers) > maxHeaders {
		return &sink.RecordError{Size: size, Reason: fmt.Errorf("it has %d headers, and an entry has room for %d", len(r.Headers), maxHeaders)}
	}
	return nil
}

// NewWriter implements [sink.Sink].
func (s *redisSink) NewWriter(cfg sink.WriterConfig) sink.Writer {
	return lane.NewWriter(cfg, newTransport(s.cfg, s.stats), s.stats, s.log)
}

// CheckDestinations implements [sink.Sink]. It does not find out whether the user may write.
func (s *redisSink) CheckDestinations(ctx context.Context, destinations ...string) error {
	var absent []string
	err := lane.Retry(ctx, s.stats, s.log, func(ctx context.Context) error {
		absent = absent[:0]
		return s.client.attempt(ctx, func() error {
			for _, name := range destinations {
				exists, err := s.client.exists(ctx, name)
				switch {
				case err != nil:
					return err
				case !exists && !s.cfg.CreateStreams:
					absent = append(absent, name)
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("look up streams: %w", err)
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w: %s", errMissing, strings.Join(absent, ", "))
	}
	return nil
}

// exists reports whether a stream exists. The error wraps sink.ErrAccess if the user may not read it, or if the key is not
// a stream.
func (c *client) exists(ctx context.Context, stream string) (bool, error) {
	err := c.XLen(ctx, stream).Err()
	if err == nil {
		n, err := c.Exists(ctx, stream).Result()
		return n > 0, err
	}
	if err = errorOf(err); errors.Is(err, errUnusable) {
		return false, fmt.Errorf("%w: stream %s: %w", errAccess, stream, err)
	}
	return false, err
}

// Stat implements [sink.Sink].
func (s *redisSink) Stat() sink.Stat { return s.stats.Stat() }

// Close implements [sink.Sink].
func (s *redisSink) Close() error {
	s.mu.Lock()
	stores := s.stores
	s.stores = nil
	s.mu.Unlock()
	err := s.client.Close()
	for _, store := range stores {
		err = errors.Join(err, store.client.Close())
	}
	return err
}
