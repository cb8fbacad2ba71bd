package config

import (
	"math"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
)

var redisKeys = slices.Concat([]key{
	{path: "sink.redis_streams", kind: section, doc: "Redis Streams: one server, a primary that Sentinel watches, or a cluster. See [redis-streams.md](redis-streams.md)."},
	{
		path: "sink.redis_streams.addresses", kind: list, needed: true, flag: "redis", usage: "Redis server, Sentinels or cluster nodes, `host:port` separated by commas", example: "[localhost:6379]",
		pattern: hostPortPattern, rule: "host:port",
		doc: "The server. With `sentinel.primary`: the Sentinels. With `cluster`: some of its nodes.",
	},
	{path: "sink.redis_streams.cluster", kind: boolean, def: false, doc: "The server is a node of a Redis Cluster."},
	{path: "sink.redis_streams.database", kind: integer, min: 0, max: math.MaxInt32, def: 0, doc: "Number of the database. A cluster has only 0."},
	{path: "sink.redis_streams.user", kind: text, expands: true, doc: "ACL user. Default: the user `default`."},
	{path: "sink.redis_streams.password", kind: secret, doc: "Password of the user. Default: no login."},
	{path: "sink.redis_streams.password_file", kind: text, example: "/run/secrets/redis-password", doc: "File with the password. The relay reads it again for each connection."},
	{
		path: "sink.redis_streams.create_streams", kind: boolean, def: true,
		doc: "The first record of a stream creates it. `false`: records wait until the stream exists, which finds mistakes in `outbox.topic`.",
	},
	{
		path: "sink.redis_streams.max_entry_bytes", kind: integer, min: 1,
		doc: "Maximum size of a record; a larger one is a bad record. Default: `proto-max-bulk-len` of the server, or 512 MiB if the user may not read it.",
	},
	{path: "sink.redis_streams.trim", kind: section, doc: "Removal of old entries, also of those that a consumer has not read. The stream of dead letters is never trimmed."},
	{
		path: "sink.redis_streams.trim.max_len", kind: integer, min: 1,
		doc: "Keep about this number of entries of each stream (`MAXLEN ~`). Default: all.",
	},
	{
		path: "sink.redis_streams.trim.max_wal_bytes", kind: integer, min: 1,
		doc: "Keep about the entries whose commit is at most this number of bytes of WAL behind the newest one (`MINID ~`). Default: all.",
	},
	{path: "sink.redis_streams.wait", kind: section, doc: "Replicas that must have a record before it is acknowledged (`WAIT`)."},
	{path: "sink.redis_streams.wait.replicas", kind: integer, min: 0, max: math.MaxInt16, def: 0, doc: "Number of replicas. 0: the primary acknowledges."},
	{path: "sink.redis_streams.wait.timeout", kind: duration, def: 2 * time.Second, doc: "Time after which the relay sends the records again. The server recognizes them."},
	{path: "sink.redis_streams.sentinel", kind: section, doc: "Sentinels, which name the primary."},
	{path: "sink.redis_streams.sentinel.primary", kind: text, doc: "Name of the primary at the Sentinels."},
	{path: "sink.redis_streams.sentinel.user", kind: text, expands: true, doc: "User at the Sentinels."},
	{path: "sink.redis_streams.sentinel.password", kind: secret, doc: "Password at the Sentinels."},
	{path: "sink.redis_streams.sentinel.password_file", kind: text, doc: "File with the password at the Sentinels."},
}, windowKeys("sink.redis_streams.window.", redisstreams.DefaultWindowBytes, 50_000), tlsKeys("sink.redis_streams.tls."))
