package config

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
)

const (
	redisKind  = "redis_streams"
	atRedis    = "sink.redis_streams."
	atRedisTLS = atRedis + "tls."
	atSentinel = atRedis + "sentinel."
)

func redisBroker() broker {
	return broker{
		kind: redisKind, title: "Redis Streams", system: "redis", stores: true,
		names: func(*Config) encode.Names { return redisstreams.Names{} },
		check: func(c *Config) error {
			if len(c.Sink.RedisStreams.Addresses) == 0 {
				return nil // a command that sends nothing does not need it
			}
			_, err := c.RedisStreams()
			return err
		},
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.RedisStreams()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn:      (*Config).redisWarnings,
		addresses: func(c *Config) []string { return c.Sink.RedisStreams.Addresses },
		reloads: []replaced{
			replacedLogin(atRedis, "password"),
			replacedLogin(atSentinel, "password"),
			replacedTLS(atRedisTLS),
		},
	}
}

// RedisStreams returns the settings of sink.redis_streams, or an [*Error] that names every missing or wrong key.
func (c *Config) RedisStreams() (redisstreams.Config, error) {
	r := c.Sink.RedisStreams
	var missingErr error
	if len(r.Addresses) == 0 {
		missingErr = missing(atRedis + "addresses")
	}
	encryption, tlsErr := c.encryption(atRedisTLS)
	credentials, loginErr := c.redisLogin(atRedis, r.User)
	sentinel, sentinelErr := c.redisSentinel()
	if err := join(missingErr, c.checkPorts(atRedis+"addresses", 1, r.Addresses...), tlsErr, loginErr, sentinelErr); err != nil {
		return redisstreams.Config{}, err
	}
	cfg := redisstreams.Config{
		Addrs: r.Addresses, Sentinel: sentinel, Cluster: r.Cluster, Database: r.Database,
		Credentials: credentials, TLS: encryption,
		CreateStreams: r.CreateStreams, MaxEntryBytes: r.MaxEntryBytes,
		Trim:        redisstreams.Trim{MaxLen: int64(r.Trim.MaxLen), MaxWAL: uint64(r.Trim.MaxWALBytes), Keep: []string{c.DeadLetterTopic}},
		Wait:        redisstreams.Wait{Replicas: r.Wait.Replicas, Timeout: r.Wait.Timeout},
		WindowBytes: r.Window.Bytes, WindowRecords: r.Window.Records,
	}
	if err := cfg.Validate(); err != nil {
		return redisstreams.Config{}, c.invalid("sink.redis_streams", "%v", err)
	}
	return cfg, nil
}

// redisLogin returns a function for the user and the password at path, nil without a password. It reads the file again;
// redisLogin reads it once to validate it.
func (c *Config) redisLogin(at, user string) (func(context.Context) (user, password string, err error), error) {
	path := at + "password"
	password, err := c.readSecret(path)
	switch {
	case err != nil:
		return nil, err
	case password == "" && user != "":
		return nil, c.invalid(at+"user", "requires %s", path)
	case password == "":
		return nil, nil
	}
	return func(context.Context) (string, string, error) {
		password, err := c.currentSecret(path)
		return user, password, err
	}, nil
}

// redisSentinel returns the Sentinels, nil if there are none.
func (c *Config) redisSentinel() (*redisstreams.Sentinel, error) {
	s := c.Sink.RedisStreams.Sentinel
	if s.Primary == "" {
		return nil, c.withoutEffect(atSentinel, atSentinel+"primary is not set")
	}
	credentials, err := c.redisLogin(atSentinel, s.User)
	if err != nil {
		return nil, err
	}
	return &redisstreams.Sentinel{Primary: s.Primary, Credentials: credentials}, nil
}

func (c *Config) redisWarnings() []string {
	r := c.Sink.RedisStreams
	out := c.linkWarnings("Redis", atRedis, r.Addresses)
	if r.Trim.MaxLen > 0 || r.Trim.MaxWALBytes > 0 {
		out = append(out, "sink.redis_streams.trim removes entries also if a consumer has not read them")
	}
	return out
}
