package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Defaults of Config.
const (
	DefaultWindowBytes   = 16 << 20
	DefaultWindowRecords = 200_000
)

// Config configures the connection to a Kafka cluster and its producers. It implements [sink.Broker]. Every
// field but Brokers may be zero.
type Config struct {
	// Brokers are the bootstrap servers as host:port. One that responds is enough.
	Brokers []string

	// ClientID is client.id, which brokers use in logs and quotas. Empty means outbox-cdc.
	ClientID string

	// Compression is the codec for record batches: none, gzip, snappy, lz4 or zstd. Empty means
	// none.
	Compression string

	// Partitioner maps a key to a partition: murmur2 (Java clients), fnv1a (sarama's hash
	// partitioner) or crc32 (librdkafka's consistent). Empty means murmur2.
	Partitioner string

	// CreateTopics makes the producer create missing topics. Nil: records wait until somebody
	// creates the topic.
	CreateTopics *TopicSpec

	// MaxMessageBytes is the maximum size of a batch. Larger records are rejected without sending
	// them. Zero means max.message.bytes of the topic. If the user may not read that, batches have
	// at most 1,000,000 bytes, and larger records are sent for the broker to decide.
	MaxMessageBytes int

	// TLS returns the TLS configuration of a connection. It is called for each connection, from
	// any goroutine, so that certificates may be rotated. If it returns an error, the broker counts
	// as unreachable. An empty ServerName means the host of the broker. Nil: plaintext.
	TLS func() (*tls.Config, error)

	// SASL authenticates connections. Nil: no authentication.
	SASL *SASL

	// Dial makes network connections, below TLS and SASL, like net.Dialer.DialContext. Nil means
	// TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// WindowBytes limits the memory of unacknowledged records, to within one record or 64 KiB. For
	// a moment after a topic was found, it may be exceeded a little. It also limits the number of
	// duplicates after a crash. The producer uses at most 4 MiB of it while up to 341 partitions have
	// records, and at most 12 KiB for each of more, so that their batches do not become small. Zero
	// means 16 MiB.
	WindowBytes int

	// WindowRecords limits the number of unacknowledged records. Zero means 200,000.
	WindowRecords int

	// ConnectionsPerBroker is the number of connections for records to each broker, which handles
	// one request of a connection at a time. Increase it if that, or compression, limits the
	// throughput. A partition stays on one connection. Zero means 1.
	ConnectionsPerBroker int
}

// A TopicSpec has the settings of a new topic. Zero means the cluster's default.
type TopicSpec struct {
	Partitions        int32
	ReplicationFactor int16
}

// SASL configures the login: https://kafka.apache.org/documentation/#security_sasl.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	User      string // unused for OAUTHBEARER, where the token has it
	Password  string

	// Secret returns the current password, or the token of OAUTHBEARER, for which it is required. If
	// it is nil, Password is used. It is called for each login, from any goroutine, and must return
	// when ctx ends. An error that wraps sink.ErrAccess counts as a rejected login, any other error as
	// an unreachable broker.
	Secret func(ctx context.Context) (string, error)

	// Extensions are sent with a token. Names have letters only, and must not be auth (RFC 7628, 3.1).
	Extensions map[string]string
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	c = c.withDefaults()
	if len(c.Brokers) == 0 {
		return errors.New("sink: Brokers is empty")
	}
	if _, err := codecOf(c.Compression); err != nil {
		return err
	}
	if _, err := partitionerOf(c.Partitioner); err != nil {
		return err
	}
	if err := c.SASL.validate(); err != nil {
		return err
	}
	if s := c.CreateTopics; s != nil && (s.Partitions < -1 || s.ReplicationFactor < -1) {
		return fmt.Errorf("sink: CreateTopics has %d partitions, replication factor %d", s.Partitions, s.ReplicationFactor)
	}
	return sink.CheckNotNegative(c)
}

// String returns the cluster with its brokers, for messages.
func (c Config) String() string { return "Kafka at " + strings.Join(c.Brokers, ", ") }

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "outbox-cdc")
	c.Compression = cmp.Or(c.Compression, "none")
	c.Partitioner = cmp.Or(c.Partitioner, "murmur2")
	c.WindowBytes = cmp.Or(c.WindowBytes, DefaultWindowBytes)
	c.WindowRecords = cmp.Or(c.WindowRecords, DefaultWindowRecords)
	c.ConnectionsPerBroker = cmp.Or(c.ConnectionsPerBroker, 1)
	return c
}
