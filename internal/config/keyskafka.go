package config

import (
	"math"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// Mechanisms of sink.kafka.sasl.mechanism.
const (
	saslPlain    = "PLAIN"
	saslSCRAM256 = "SCRAM-SHA-256"
	saslSCRAM512 = "SCRAM-SHA-512"
	saslBearer   = "OAUTHBEARER"
	saslMSK      = "AWS_MSK_IAM"
)

var kafkaKeys = slices.Concat([]key{
	{path: "sink.kafka", kind: section, doc: "A Kafka cluster."},
	{
		path: "sink.kafka.brokers", kind: list, needed: true, flag: "brokers", usage: "Kafka brokers, `host:port` separated by commas", example: "[localhost:9092]",
		pattern: hostPortPattern, rule: "host:port",
		doc: "Bootstrap brokers.",
	},
	{
		path: "sink.kafka.client_id", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'",
		doc: "Kafka client id. Default: `name`.",
	},
	{path: "sink.kafka.compression", kind: choice, def: "none", allowed: []string{"none", "gzip", "snappy", "lz4", "zstd"}, doc: "Compression of record batches."},
	{
		path: "sink.kafka.partitioner", kind: choice, def: "murmur2", allowed: []string{"murmur2", "fnv1a", "crc32"},
		doc: "Hash of the key that selects the partition: `murmur2` as in Java clients, `fnv1a` as in sarama, `crc32` as in librdkafka.",
	},
	{path: "sink.kafka.create_topics", kind: section, doc: "Creation of missing topics. By default, topics must exist."},
	{
		path: "sink.kafka.create_topics.partitions", kind: integer, min: -1, max: math.MaxInt32, example: "6",
		doc: "Create missing topics with this number of partitions; -1: the broker's default. Not set: the relay creates no topics.",
	},
	{
		path: "sink.kafka.create_topics.replication_factor", kind: integer, min: -1, max: math.MaxInt16, def: -1,
		doc: "Replication factor of created topics; -1: the broker's default.",
	},
	{path: "sink.kafka.connections_per_broker", kind: integer, min: 1, def: 2, doc: "Connections to each broker. A broker handles one request per connection at a time; each partition uses one connection."},
	{
		path: "sink.kafka.max_message_bytes", kind: integer, min: 1,
		doc: "Maximum size of a batch, and so of a record. Default: `max.message.bytes` of each topic, which the relay reads.",
	},
	{path: "sink.kafka.window", kind: section, doc: "Limits of the records in flight."},
	{
		path: "sink.kafka.window.bytes", kind: integer, min: 1, def: kafka.DefaultWindowBytes,
		doc: "Maximum bytes of unacknowledged records. This bounds the relay's memory. The relay uses at most 4 MiB of it while up to 341 partitions have records, and 12 KiB for each of more.",
	},
	{path: "sink.kafka.window.records", kind: integer, min: 1, def: kafka.DefaultWindowRecords, doc: "Maximum number of unacknowledged records."},
}, tlsKeys(atTLS), []key{
	{path: "sink.kafka.sasl", kind: section, doc: "Login. The relay reads files again for each login."},
	{
		path: "sink.kafka.sasl.mechanism", kind: choice, allowed: []string{saslPlain, saslSCRAM256, saslSCRAM512, saslBearer, saslMSK},
		doc: "SASL mechanism. Default: no login.",
	},
	{path: "sink.kafka.sasl.user", kind: text, expands: true, doc: "User name, for `PLAIN` and `SCRAM-…`."},
	{path: "sink.kafka.sasl.password", kind: secret, doc: "Password of the user."},
	{path: "sink.kafka.sasl.password_file", kind: text, example: "/run/secrets/kafka-password", doc: "File with the password."},
	{
		path: "sink.kafka.sasl.token_file", kind: text, example: "/var/run/secrets/tokens/kafka",
		doc: "File with a token that another process renews, for `OAUTHBEARER`.",
	},
	{
		path: "sink.kafka.sasl.token_url", kind: text, pattern: `^https?://[^\s@]+$`, rule: "a URL that begins with https:// or http://",
		example: "https://idp.example.com/oauth2/token", doc: "Token endpoint for the client credentials grant, for `OAUTHBEARER` without `token_file`.",
	},
	{path: "sink.kafka.sasl.client_id", kind: text, expands: true, doc: "Client id for `token_url`."},
	{path: "sink.kafka.sasl.client_secret", kind: secret, doc: "Client secret for `token_url`."},
	{path: "sink.kafka.sasl.client_secret_file", kind: text, example: "/run/secrets/kafka-client", doc: "File with the client secret."},
	{
		path: "sink.kafka.sasl.scopes", kind: list, pattern: `^[!#-\[\]-~]+$`, rule: "a scope, without spaces and quotes", example: "[kafka]",
		doc: "Scopes to request from `token_url`.",
	},
	{
		path: "sink.kafka.sasl.extensions", kind: list, pattern: `^[A-Za-z]+=[ -~]*$`, rule: "name=value, with a name of letters", example: "[logicalCluster=lkc-1234]",
		doc: "SASL extensions that the relay sends with a token.",
	},
	{
		path: "sink.kafka.sasl.region", kind: text, pattern: `^[a-z0-9-]+$`, rule: "a region, such as eu-central-1", example: "eu-central-1",
		doc: "Region of the Amazon MSK cluster, for `AWS_MSK_IAM`. Credentials come from the default AWS credential chain.",
	},
})
