package config

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
)

var rabbitMQKeys = slices.Concat([]key{
	{path: "sink.rabbitmq", kind: section, doc: "A RabbitMQ server or cluster. See [rabbitmq.md](rabbitmq.md)."},
	{
		path: "sink.rabbitmq.servers", kind: list, needed: true, example: "[localhost:5672]",
		pattern: hostPortPattern, rule: "host:port",
		doc: "Servers of one cluster. The relay connects to the first that responds. The usual port is 5672, with TLS 5671.",
	},
	{path: "sink.rabbitmq.vhost", kind: text, def: "/", expands: true, doc: "Virtual host."},
	{path: "sink.rabbitmq.user", kind: text, expands: true, example: "outbox", doc: "User name. Default: the client certificate identifies the user (mechanism `EXTERNAL`)."},
	{path: "sink.rabbitmq.password", kind: secret, doc: "Password of the user, or an OAuth 2 token."},
	{path: "sink.rabbitmq.password_file", kind: text, example: "/run/secrets/rabbitmq-password", doc: "File with the password. The relay reads it again for each connection."},
	{
		path: "sink.rabbitmq.content_type", kind: text, pattern: `^[!-~]{1,255}$`, rule: "a media type", example: "application/json",
		doc: "Property `content_type` of messages whose record has no header `content-type`. Default: none.",
	},
	{path: "sink.rabbitmq.connections", kind: integer, min: 1, max: 64, def: 1, doc: "Connections for messages. More help only if the broker has idle processor cores while the relay lags."},
	{
		path: "sink.rabbitmq.max_message_bytes", kind: integer, min: 1,
		doc: "Maximum size of a payload. Default: `max_message_size` of the broker, which rejects larger messages.",
	},
	{
		path: "sink.rabbitmq.heartbeat", kind: duration, def: 10 * time.Second,
		doc: "Interval of heartbeats, from 2s on. A connection counts as lost after one and a half of it without a byte from the broker.",
	},
}, windowKeys("sink.rabbitmq.window.", rabbitmq.DefaultWindowBytes, rabbitmq.DefaultWindowRecords), tlsKeys(atRabbitTLS))
