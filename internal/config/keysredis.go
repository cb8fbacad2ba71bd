package config

import (
	"math"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

func (c *Config) redisKeys() []key {
	return slices.Concat([]key{
		{path: "sink.redis_streams", doc: "Redis Streams: one server, a primary that Sentinel watches, or a cluster. See [redis-streams.md](redis-streams.md)."},
		{
			path: "sink.redis_streams.addresses", at: &c.Sink.RedisStreams.Addresses, needed: true, flag: "redis", usage: "Redis server, Sentinels or cluster nodes, `host:port` separated by commas", example: "[localhost:6379]",
			pattern: hostPortPattern, rule: "host:port",
			doc: "The server. With `sentinel.primary`: the Sentinels. With `cluster`: some of its nodes.",
		},
		{path: "sink.redis_streams.cluster", at: &c.Sink.RedisStreams.Cluster, def: false, doc: "The server is a node of a Redis Cluster."},
		{path: "sink.redis_streams.database", at: &c.Sink.RedisStreams.Database, min: 0, max: math.MaxInt32, def: 0, doc: "Number of the database. A cluster has only 0."},
		{path: "sink.redis_streams.user", at: &c.Sink.RedisStreams.User, expands: true, doc: "ACL user. Default: the user `default`."},
		{path: "sink.redis_streams.password", at: &c.Sink.RedisStreams.Password, doc: "Password of the user. Default: no login."},
		{path: "sink.redis_streams.password_file", at: &c.Sink.RedisStreams.PasswordFile, example: "/run/secrets/redis-password", doc: "File with the password. The relay reads it again for each connection."},
		{
			path: "sink.redis_streams.create_streams", at: &c.Sink.RedisStreams.CreateStreams, def: true,
			doc: "The first record of a stream creates it. `false`: records wait until the stream exists, which finds mistakes in `outbox.topic`.",
		},
		{
			path: "sink.redis_streams.max_entry_bytes", at: &c.Sink.RedisStreams.MaxEntryBytes, min: 1,
			doc: "Maximum size of a record; a larger one is a bad record. Default: `proto-max-bulk-len` of the server, or 512 MiB if the user may not read it.",
		},
		{path: "sink.redis_streams.trim", doc: "Removal of old entries, also of those that a consumer has not read. The stream of dead letters is never trimmed."},
		{
			path: "sink.redis_streams.trim.max_len", at: &c.Sink.RedisStreams.Trim.MaxLen, min: 1,
			doc: "Keep about this number of entries of each stream (`MAXLEN ~`). Default: all.",
		},
		{
			path: "sink.redis_streams.trim.max_wal_bytes", at: &c.Sink.RedisStreams.Trim.MaxWALBytes, min: 1,
			doc: "Keep about the entries whose commit is at most this number of bytes of WAL behind the newest one (`MINID ~`). Default: all.",
		},
		{path: "sink.redis_streams.wait", doc: "Replicas that must have a record before it is acknowledged (`WAIT`)."},
		{path: "sink.redis_streams.wait.replicas", at: &c.Sink.RedisStreams.Wait.Replicas, min: 0, max: math.MaxInt16, def: 0, doc: "Number of replicas. 0: the primary acknowledges."},
		{path: "sink.redis_streams.wait.timeout", at: &c.Sink.RedisStreams.Wait.Timeout, def: 2 * time.Second, doc: "Time after which the relay sends the records again. The server recognizes them."},
		{path: "sink.redis_streams.sentinel", doc: "Sentinels, which name the primary."},
		{path: "sink.redis_streams.sentinel.primary", at: &c.Sink.RedisStreams.Sentinel.Primary, doc: "Name of the primary at the Sentinels."},
		{path: "sink.redis_streams.sentinel.user", at: &c.Sink.RedisStreams.Sentinel.User, expands: true, doc: "User at the Sentinels."},
		{path: "sink.redis_streams.sentinel.password", at: &c.Sink.RedisStreams.Sentinel.Password, doc: "Password at the Sentinels."},
		{path: "sink.redis_streams.sentinel.password_file", at: &c.Sink.RedisStreams.Sentinel.PasswordFile, doc: "File with the password at the Sentinels."},
	}, windowKeys("sink.redis_streams.window.", &c.Sink.RedisStreams.Window, lane.DefaultWindowBytes, lane.DefaultWindowRecords), tlsKeys(atRedisTLS, &c.Sink.RedisStreams.TLS))
}
