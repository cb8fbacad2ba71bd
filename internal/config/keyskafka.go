package config

import (
	"math"

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

var kafkaKeys = []key{
	{path: "sink", kind: section, doc: "Where records go."},
	{path: "sink.kafka", kind: section, doc: "A Kafka cluster."},
	{
		path: "sink.kafka.brokers", kind: list, needed: true, flag: "brokers", usage: "Kafka brokers, `host:port` separated by commas", example: "[localhost:9092]",
		pattern: `^(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):[0-9]{1,5}$`, rule: "host:port",
		doc: "Brokers to begin with; the others are found through them.",
	},
	{
		path: "sink.kafka.client_id", kind: text, pattern: `^[A-Za-z0-9._-]{1,249}$`, rule: "letters, digits, '.', '_' and '-'",
		doc: "Client id shown to the brokers. Default: `name`.",
	},
	{path: "sink.kafka.compression", kind: choice, def: "none", allowed: []string{"none", "gzip", "snappy", "lz4", "zstd"}, doc: "Compression of batches."},
	{
		path: "sink.kafka.partitioner", kind: choice, def: "murmur2", allowed: []string{"murmur2", "fnv1a", "crc32"},
		doc: "Hash of the key that selects the partition: `murmur2` as Java clients do, `fnv1a` as sarama, `crc32` as librdkafka.",
	},
	{path: "sink.kafka.create_topics", kind: section, doc: "Creation of missing topics. By default they must exist."},
	{
		path: "sink.kafka.create_topics.partitions", kind: integer, min: -1, max: math.MaxInt32, example: "12",
		doc: "Create missing topics with so many partitions; -1 leaves it to the broker. Default: they are not created.",
	},
	{
		path: "sink.kafka.create_topics.replication_factor", kind: integer, min: -1, max: math.MaxInt16, def: -1,
		doc: "Replication factor of created topics; -1 leaves it to the broker.",
	},
	{path: "sink.kafka.connections_per_broker", kind: integer, min: 1, def: 2, doc: "Connections to each broker, which works on one request of each at a time; a partition stays on one of them."},
	{
		path: "sink.kafka.max_message_bytes", kind: integer, min: 1,
		doc: "Size of the largest batch, and so of the largest record, that topics take. Default: each topic's `max.message.bytes`, asked for.",
	},
	{path: "sink.kafka.window", kind: section, doc: "Bound on what is under way."},
	{path: "sink.kafka.window.bytes", kind: integer, min: 1, def: kafka.DefaultWindowBytes, doc: "Bytes sent and not yet acknowledged, at most: the memory that is used, whatever happens."},
	{path: "sink.kafka.window.records", kind: integer, min: 1, def: 50_000, doc: "Records sent and not yet acknowledged, at most."},

	{path: "sink.kafka.tls", kind: section, doc: "Encryption. Files are read again for each connection."},
	{path: "sink.kafka.tls.enabled", kind: boolean, def: false, doc: "Use TLS, 1.2 or later, and verify the brokers' certificates."},
	{path: "sink.kafka.tls.ca_file", kind: text, example: "/etc/outbox-cdc/ca.pem", doc: "Certificates to trust (PEM). Default: the system's."},
	{path: "sink.kafka.tls.cert_file", kind: text, doc: "Client certificate (PEM), with `key_file`."},
	{path: "sink.kafka.tls.key_file", kind: text, doc: "Key of the client certificate (PEM)."},
	{path: "sink.kafka.tls.server_name", kind: text, doc: "Name the certificates must carry. Default: the broker's host."},
	{path: "sink.kafka.tls.insecure_skip_verify", kind: boolean, def: false, doc: "Accept any certificate. Not for production."},

	{path: "sink.kafka.sasl", kind: section, doc: "Login. Files are read again for each one."},
	{
		path: "sink.kafka.sasl.mechanism", kind: choice, allowed: []string{saslPlain, saslSCRAM256, saslSCRAM512, saslBearer, saslMSK},
		doc: "How to log in. Default: not at all.",
	},
	{path: "sink.kafka.sasl.user", kind: text, expands: true, doc: "User to log in as: `PLAIN`, `SCRAM-…`."},
	{path: "sink.kafka.sasl.password", kind: secret, doc: "Password of the user."},
	{path: "sink.kafka.sasl.password_file", kind: text, example: "/run/secrets/kafka-password", doc: "File that holds the password of the user."},
	{
		path: "sink.kafka.sasl.token_file", kind: text, example: "/var/run/secrets/tokens/kafka",
		doc: "File that holds a token: `OAUTHBEARER`, where somebody else keeps it fresh.",
	},
	{
		path: "sink.kafka.sasl.token_url", kind: text, pattern: `^https?://[^\s@]+$`, rule: "a URL that begins with https:// or http://",
		example: "https://idp.example.com/oauth2/token", doc: "Endpoint to get tokens from, as a client with a secret: `OAUTHBEARER` without `token_file`.",
	},
	{path: "sink.kafka.sasl.client_id", kind: text, expands: true, doc: "The client's id at `token_url`."},
	{path: "sink.kafka.sasl.client_secret", kind: secret, doc: "The client's secret."},
	{path: "sink.kafka.sasl.client_secret_file", kind: text, example: "/run/secrets/kafka-client", doc: "File that holds the client's secret."},
	{
		path: "sink.kafka.sasl.scopes", kind: list, pattern: `^[!#-\[\]-~]+$`, rule: "a scope, without spaces and quotes", example: "[kafka]",
		doc: "Scopes to ask `token_url` for.",
	},
	{
		path: "sink.kafka.sasl.extensions", kind: list, pattern: `^[A-Za-z]+=[ -~]*$`, rule: "name=value, with a name of letters", example: "[logicalCluster=lkc-1234]",
		doc: "What goes to the broker with a token.",
	},
	{
		path: "sink.kafka.sasl.region", kind: text, pattern: `^[a-z0-9-]+$`, rule: "a region, such as eu-central-1", example: "eu-central-1",
		doc: "Region of the Amazon MSK cluster: `AWS_MSK_IAM`, with the credentials that all of AWS's tools find.",
	},
}
