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

func (c *Config) kafkaKeys() []key {
	return slices.Concat([]key{
		{path: "sink.kafka", doc: "A Kafka cluster."},
		{
			path: "sink.kafka.brokers", at: &c.Sink.Kafka.Brokers, needed: true, flag: "brokers", usage: "Kafka brokers, `host:port` separated by commas", example: "[localhost:9092]",
			pattern: hostPortPattern, rule: "host:port",
			doc: "Bootstrap brokers.",
		},
		{
			path: "sink.kafka.client_id", at: &c.Sink.Kafka.ClientID, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'",
			doc: "Kafka client id. Default: `name`.",
		},
		{path: "sink.kafka.compression", at: &c.Sink.Kafka.Compression, def: "none", allowed: []string{"none", "gzip", "snappy", "lz4", "zstd"}, doc: "Compression of record batches."},
		{
			path: "sink.kafka.partitioner", at: &c.Sink.Kafka.Partitioner, def: "murmur2", allowed: []string{"murmur2", "fnv1a", "crc32"},
			doc: "Hash of the key that selects the partition: `murmur2` as in Java clients, `fnv1a` as in sarama, `crc32` as in librdkafka.",
		},
		{path: "sink.kafka.create_topics", doc: "Creation of missing topics. By default, topics must exist."},
		{
			path: "sink.kafka.create_topics.partitions", at: &c.Sink.Kafka.CreateTopics.Partitions, min: -1, max: math.MaxInt32, example: "6",
			doc: "Create missing topics with this number of partitions; -1: the broker's default. Not set: the relay creates no topics.",
		},
		{
			path: "sink.kafka.create_topics.replication_factor", at: &c.Sink.Kafka.CreateTopics.ReplicationFactor, min: -1, max: math.MaxInt16, def: -1,
			doc: "Replication factor of created topics; -1: the broker's default.",
		},
		{path: "sink.kafka.connections_per_broker", at: &c.Sink.Kafka.ConnectionsPerBroker, min: 1, def: 2, doc: "Connections to each broker. A broker handles one request per connection at a time; each partition uses one connection."},
		{
			path: "sink.kafka.max_message_bytes", at: &c.Sink.Kafka.MaxMessageBytes, min: 1,
			doc: "Maximum size of a batch, and so of a record. Default: `max.message.bytes` of each topic, which the relay reads.",
		},
		{path: "sink.kafka.window", doc: "Limits of the records in flight."},
		{
			path: "sink.kafka.window.bytes", at: &c.Sink.Kafka.Window.Bytes, min: 1, def: kafka.DefaultWindowBytes,
			doc: "Maximum bytes of unacknowledged records. This bounds the relay's memory. The relay uses at most 4 MiB of it while up to 341 partitions have records, and 12 KiB for each of more.",
		},
		{path: "sink.kafka.window.records", at: &c.Sink.Kafka.Window.Records, min: 1, def: kafka.DefaultWindowRecords, doc: "Maximum number of unacknowledged records."},
	}, tlsKeys(atTLS, &c.Sink.Kafka.TLS), []key{
		{path: "sink.kafka.sasl", doc: "Login. The relay reads files again for each login."},
		{
			path: "sink.kafka.sasl.mechanism", at: &c.Sink.Kafka.SASL.Mechanism, allowed: []string{saslPlain, saslSCRAM256, saslSCRAM512, saslBearer, saslMSK},
			doc: "SASL mechanism. Default: no login.",
		},
		{path: "sink.kafka.sasl.user", at: &c.Sink.Kafka.SASL.User, expands: true, doc: "User name, for `PLAIN` and `SCRAM-…`."},
		{path: "sink.kafka.sasl.password", at: &c.Sink.Kafka.SASL.Password, doc: "Password of the user."},
		{path: "sink.kafka.sasl.password_file", at: &c.Sink.Kafka.SASL.PasswordFile, example: "/run/secrets/kafka-password", doc: "File with the password."},
		{
			path: "sink.kafka.sasl.token_file", at: &c.Sink.Kafka.SASL.TokenFile, example: "/var/run/secrets/tokens/kafka",
			doc: "File with a token that another process renews, for `OAUTHBEARER`.",
		},
		{
			path: "sink.kafka.sasl.token_url", at: &c.Sink.Kafka.SASL.TokenURL, pattern: `^https?://[^\s@]+$`, rule: "a URL that begins with https:// or http://",
			example: "https://idp.example.com/oauth2/token", doc: "Token endpoint for the client credentials grant, for `OAUTHBEARER` without `token_file`.",
		},
		{path: "sink.kafka.sasl.client_id", at: &c.Sink.Kafka.SASL.ClientID, expands: true, doc: "Client id for `token_url`."},
		{path: "sink.kafka.sasl.client_secret", at: &c.Sink.Kafka.SASL.ClientSecret, doc: "Client secret for `token_url`."},
		{path: "sink.kafka.sasl.client_secret_file", at: &c.Sink.Kafka.SASL.ClientSecretFile, example: "/run/secrets/kafka-client", doc: "File with the client secret."},
		{
			path: "sink.kafka.sasl.scopes", at: &c.Sink.Kafka.SASL.Scopes, pattern: `^[!#-\[\]-~]+$`, rule: "a scope, without spaces and quotes", example: "[kafka]",
			doc: "Scopes to request from `token_url`.",
		},
		{
			path: "sink.kafka.sasl.extensions", at: &c.Sink.Kafka.SASL.Extensions, pattern: `^[A-Za-z]+=[ -~]*$`, rule: "name=value, with a name of letters", example: "[logicalCluster=lkc-1234]",
			doc: "SASL extensions that the relay sends with a token.",
		},
		{
			path: "sink.kafka.sasl.region", at: &c.Sink.Kafka.SASL.Region, pattern: `^[a-z0-9-]+$`, rule: "a region, such as eu-central-1", example: "eu-central-1",
			doc: "Region of the Amazon MSK cluster, for `AWS_MSK_IAM`. Credentials come from the default AWS credential chain.",
		},
	})
}
