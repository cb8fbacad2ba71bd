// Package inboxredis runs an [inbox.Processor] as a member of a consumer group of Redis Streams, with go-redis.
//
//	err := inboxredis.Run(ctx, processor, inboxredis.Config{
//		Client: client, Group: "notifications", Streams: []string{"outbox.event.order"},
//	})
//
// It needs Redis 6.2 or later, or Valkey.
//
// # Acknowledgements
//
// An entry is acknowledged (XACK) after the transaction in which it was handled or stored in the inbox. Entries that are
// read and not acknowledged stay in the pending entries list of the group. The next session claims them (XAUTOCLAIM),
// whichever consumer has read them, before it reads new ones.
//
// # Order and several instances
//
// A consumer group distributes entries over its consumers without regard to keys. So one instance at a time reads a stream. It
// has a lock, a key beside the stream that expires after Config.LockTTL, and reads with a script that first checks the lock.
// If it crashes, another instance continues when the lock has expired. If it stops, it releases the lock at once. Instances
// share the streams, so to use several at a time, distribute the keys over several streams. All instances read as the
// consumer inbox. No other program may read with this group.
//
// # What Redis must keep
//
// Redis removes entries by length or age, also those that nobody has read, if the relay or somebody else trims the stream.
// Run logs how many entries were trimmed after they were read and before they were acknowledged. It cannot notice those that
// were trimmed before they were read: keep enough.
package inboxredis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// Config configures [Run]. Client, Group and Streams are required.
type Config struct {
	// Client is a *redis.Client, also one for Sentinel, or a *redis.ClusterClient.
	Client redis.UniversalClient
	// Group is the consumer group of the service, which all instances share. If a stream does not have it, Run creates it.
	// It then starts at the beginning of the stream.
	Group string
	// Streams are the keys of the streams.
	Streams []string
	// Concurrency is how many events of a stream are handled at the same time. They have different keys, and each uses a
	// connection of the pool. Zero means 4.
	Concurrency int
	// Window is how many entries of a stream are in memory. Zero means 200.
	Window int
	// LockTTL is the time after which another instance reads a stream if this one has crashed. Zero means 10 s.
	LockTTL time.Duration
}

const (
	defaultConcurrency = 4
	defaultWindow      = 200
	defaultLockTTL     = 10 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Client == nil:
		return c, errors.New("inboxredis: Config.Client is nil")
	case c.Group == "":
		return c, errors.New("inboxredis: Config.Group is empty")
	case len(c.Streams) == 0:
		return c, errors.New("inboxredis: Config.Streams is empty")
	case c.Concurrency < 0 || c.Window < 0 || c.LockTTL < 0:
		return c, errors.New("inboxredis: a number of Config is negative")
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.LockTTL == 0 {
		c.LockTTL = defaultLockTTL
	}
	return c, nil
}

// Run consumes streams and runs p, until ctx is done. Then it waits until the running handlers have finished, or until
// Config.Grace of p is over, and returns nil. Entries that are not handled go to another instance.
//
// Run continues while Redis is unavailable or a stream does not exist. It returns an error that a retry cannot fix: from
// p.Handle or p.Run, or if Redis rejects the user or a key is not a stream.
func Run(ctx context.Context, p *inbox.Processor, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	p.Logger().InfoContext(ctx, "inbox: joining the consumer group", slog.String("group", cfg.Group), slog.Any("streams", cfg.Streams))
	functions := []func(context.Context) error{p.Run}
	for _, stream := range cfg.Streams {
		c := &consumer{
			Config: cfg, p: p, stream: stream, lock: lockOf(cfg, stream),
			log: &logger{log: p.Logger().With(slog.String("group", cfg.Group), slog.String("stream", stream))},
		}
		functions = append(functions, c.consume)
	}
	return sessions.Run(ctx, functions...)
}

// A consumer runs sessions with a stream, one after the other.
type consumer struct {
	Config

	p      *inbox.Processor
	stream string
	lock   lock
	log    *logger
}

const requestTimeout = 5 * time.Second

// consume runs sessions until ctx is done or an error is final.
func (c *consumer) consume(ctx context.Context) error {
	return sessions.Repeat(ctx, func(ctx context.Context) error {
		err := c.join(ctx)
		if isFinal(err) {
			return sessions.Final(err)
		}
		return err
	}, c.log.trouble)
}

// join creates the group if it does not exist, and runs a session if no other instance has the lock. It waits a while before
// the next attempt to get the lock.
func (c *consumer) join(ctx context.Context) error {
	err := c.Client.XGroupCreate(ctx, c.stream, c.Group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("inboxredis: create the group: %w", err)
	}
	acquired, err := c.lock.acquire(ctx)
	if err != nil {
		return fmt.Errorf("inboxredis: acquire the lock: %w", err)
	}
	c.log.open(ctx)
	if acquired {
		if err := c.session(ctx); err != nil {
			return err
		}
	}
	sessions.Sleep(ctx, min(sessions.RetryDelay, c.LockTTL/4))
	return nil
}

// isFinal reports whether a retry must fail too: Redis rejects the user or the command.
func isFinal(err error) bool {
	if errors.Is(err, redis.ErrClosed) {
		return true
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	for _, code := range []string{"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "unknown command", "CROSSSLOT"} {
		if strings.Contains(answer.Error(), code) {
			return true
		}
	}
	return false
}
