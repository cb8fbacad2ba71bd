package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// DefaultWindowBytes is Config.WindowBytes where it is zero.
const DefaultWindowBytes = 4 << 20

const defaultWindowRecords = 50_000

// Config says which cluster to write to, and how. The zero value of every field but Brokers
// is a usable default. It is a [sink.Broker].
type Config struct {
	// Brokers are host:port pairs to begin with; one that answers is enough.
	Brokers []string

	// ClientID names this client in the brokers' logs and quotas. Empty means outbox-cdc.
	ClientID string

	// Compression of record batches: none, gzip, snappy, lz4 or zstd. Empty means none.
	Compression string

	// Partitioner maps a key to a partition: murmur2 (Java clients), fnv1a (sarama's hash
	// partitioner) or crc32 (librdkafka's consistent). Empty means murmur2.
	Partitioner string

	// CreateTopics is how a missing topic is created. Nil means that it is waited for.
	CreateTopics *TopicSpec

	// MaxMessageBytes is the size of the largest batch a topic takes; a larger record is not
	// sent. Zero means that the topic's max.message.bytes is asked for. Where that is not
	// allowed, batches are kept within 1,000,000 bytes and larger records are left to the
	// broker to judge.
	MaxMessageBytes int

	// TLS returns how to encrypt a connection. It is called for each one, from any
	// goroutine, so that certificates may be replaced while we run; where it returns an
	// error, the broker counts as unreachable. An empty ServerName stands for the host of
	// the broker. A nil TLS means plaintext.
	TLS func() (*tls.Config, error)

	// SASL authenticates connections. Nil means not at all.
	SASL *SASL

	// Dial makes the connections that TLS and SASL go over, as net.Dialer.DialContext does.
	// Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// WindowBytes bounds the memory that unacknowledged records take, give or take one
	// record or 64 KiB, and a little more for the moment after a topic has become known. It
	// also bounds what may come twice after a crash. Zero means 4 MiB.
	WindowBytes int

	// WindowRecords bounds their number. Zero means 50,000.
	WindowRecords int

	// ConnectionsPerBroker is how many connections carry records to one broker, which works
	// on one request of each at a time. More than one pays where that or compression is the
	// limit. A partition stays on one of them. Zero means 1.
	ConnectionsPerBroker int
}

// A TopicSpec is how a missing topic is created. Zero stands for the cluster's default.
type TopicSpec struct {
	Partitions        int32
	ReplicationFactor int16
}

// SASL is how to log in: https://kafka.apache.org/documentation/#security_sasl.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	User      string // OAUTHBEARER has none: the token says it
	Password  string

	// Secret, if set, returns what to log in with instead of Password: the password of the
	// moment, or the token of OAUTHBEARER, which needs it. It is called for each login, from
	// any goroutine, and must return when ctx ends. An error that wraps sink.ErrAccess counts as
	// a refused login, any other as a broker that cannot be reached.
	Secret func(ctx context.Context) (string, error)

	// Extensions go with a token: names of letters only, other than auth (RFC 7628, 3.1).
	Extensions map[string]string
}

// Validate reports the first field that cannot be used, by name.
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
	for _, n := range []struct {
		field string
		value int
	}{
		{"MaxMessageBytes", c.MaxMessageBytes},
		{"WindowBytes", c.WindowBytes},
		{"WindowRecords", c.WindowRecords},
		{"ConnectionsPerBroker", c.ConnectionsPerBroker},
	} {
		if n.value < 0 {
			return fmt.Errorf("sink: %s is negative", n.field)
		}
	}
	return nil
}

// String names the cluster by its brokers.
func (c Config) String() string { return "Kafka at " + strings.Join(c.Brokers, ", ") }

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "outbox-cdc")
	c.Compression = cmp.Or(c.Compression, "none")
	c.Partitioner = cmp.Or(c.Partitioner, "murmur2")
	c.WindowBytes = cmp.Or(c.WindowBytes, DefaultWindowBytes)
	c.WindowRecords = cmp.Or(c.WindowRecords, defaultWindowRecords)
	c.ConnectionsPerBroker = cmp.Or(c.ConnectionsPerBroker, 1)
	return c
}
