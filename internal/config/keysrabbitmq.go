package config

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
)

func (c *Config) rabbitMQKeys() []key {
	return slices.Concat([]key{
		{path: "sink.rabbitmq", doc: "A RabbitMQ server or cluster. See [rabbitmq.md](rabbitmq.md)."},
		{
			path: "sink.rabbitmq.servers", at: &c.Sink.RabbitMQ.Servers, needed: true, example: "[localhost:5672]",
			pattern: hostPortPattern, rule: "host:port",
			doc: "Servers of one cluster. The relay connects to the first that responds. The usual port is 5672, with TLS 5671.",
		},
		{path: "sink.rabbitmq.vhost", at: &c.Sink.RabbitMQ.VHost, def: "/", expands: true, doc: "Virtual host."},
		{path: "sink.rabbitmq.user", at: &c.Sink.RabbitMQ.User, expands: true, example: "outbox", doc: "User name. Default: the client certificate identifies the user (mechanism `EXTERNAL`)."},
		{path: "sink.rabbitmq.password", at: &c.Sink.RabbitMQ.Password, doc: "Password of the user, or an OAuth 2 token."},
		{path: "sink.rabbitmq.password_file", at: &c.Sink.RabbitMQ.PasswordFile, example: "/run/secrets/rabbitmq-password", doc: "File with the password. The relay reads it again for each connection."},
		{
			path: "sink.rabbitmq.content_type", at: &c.Sink.RabbitMQ.ContentType, pattern: `^[!-~]{1,255}$`, rule: "a media type", example: "application/json",
			doc: "Property `content_type` of messages whose record has no header `content-type`. Default: none.",
		},
		{path: "sink.rabbitmq.connections", at: &c.Sink.RabbitMQ.Connections, min: 1, max: 64, def: 1, doc: "Connections for messages. More help only if the broker has idle processor cores while the relay lags."},
		{
			path: "sink.rabbitmq.max_message_bytes", at: &c.Sink.RabbitMQ.MaxMessageBytes, min: 1,
			doc: "Maximum size of a payload. Default: `max_message_size` of the broker, which rejects larger messages.",
		},
		{
			path: "sink.rabbitmq.heartbeat", at: &c.Sink.RabbitMQ.Heartbeat, def: 10 * time.Second,
			doc: "Interval of heartbeats, from 2s on. A connection counts as lost after one and a half of it without a byte from the broker.",
		},
	}, windowKeys("sink.rabbitmq.window.", &c.Sink.RabbitMQ.Window, lane.DefaultWindowBytes, rabbitmq.DefaultWindowRecords), tlsKeys(atRabbitTLS, &c.Sink.RabbitMQ.TLS))
}
