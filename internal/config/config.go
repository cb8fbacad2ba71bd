package config

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A Config is the effective configuration, as [Load] returns it. The key source.dsn_file is the
// field Source.DSNFile, and so on; keys.go describes each key.
type Config struct {
	Name            string
	Source          Source
	Outbox          Outbox
	Headers         Headers
	Sink            Sink
	Debezium        Debezium
	OnBadRecord     string
	DeadLetterTopic string

	MissingTopicTimeout time.Duration
	PositionTopic       string
	StartupTimeout      time.Duration
	DrainTimeout        time.Duration
	Admin               Admin
	Tracing             Tracing
	Log                 Log

	settings map[string]setting // in force, by path: without the contents of secret files
	files    map[string]string  // of the secrets that come from one, by path

	reloading *reloading // of what Load has returned
}

// Source is where rows are read.
type Source struct {
	DSN          Secret // of dsn or dsn_file, whichever is in force
	DSNFile      string
	Publication  string
	Slot         string
	Create       bool
	CreateSlot   bool
	InitialCopy  bool
	SlotFailover bool
	Lease        time.Duration
	WaitForSlot  bool
}

// Outbox is how rows become records.
type Outbox struct {
	Tables           []string
	Messages         []string // prefixes
	Columns          Columns
	Topic            string
	TopicRules       []encode.TopicRule
	TombstoneOnEmpty bool
	Place            []encode.Placement
	OnMissingColumn  string
	OnUpdate         string
	Encoding         Encoding
}

// Encoding is how values are written, by the part of the record.
type Encoding struct {
	Key     string
	Value   string
	Headers string
}

// Columns names the columns of an outbox table.
type Columns struct {
	ID      string
	Key     string
	Route   string
	Type    string
	Payload string

	Timestamp     string
	SchemaVersion string

	Headers      string
	TraceContext string
}

// Headers is which optional headers records carry.
type Headers struct {
	Position bool
	Static   []string // name=value
}

// Sink is where records go.
type Sink struct {
	Kafka Kafka
}

// Kafka is a Kafka cluster and how it is written to.
type Kafka struct {
	Brokers              []string
	ClientID             string
	Compression          string
	Partitioner          string
	CreateTopics         CreateTopics
	ConnectionsPerBroker int
	MaxMessageBytes      int
	Window               Window
	TLS                  TLS
	SASL                 SASL
}

// CreateTopics is how missing topics are made; Partitions 0 means they are not.
type CreateTopics struct {
	Partitions        int
	ReplicationFactor int
}

// Window bounds what is sent and not yet acknowledged.
type Window struct {
	Bytes   int
	Records int
}

// TLS is the encryption of connections to Kafka.
type TLS struct {
	Enabled            bool
	CAFile             string
	CertFile           string
	KeyFile            string
	ServerName         string
	InsecureSkipVerify bool
}

// SASL is the login at Kafka; an empty Mechanism means none. Of a secret and its file, the
// secret is the content of whichever is in force.
type SASL struct {
	Mechanism        string
	User             string
	Password         Secret
	PasswordFile     string
	TokenFile        string
	TokenURL         string
	ClientID         string
	ClientSecret     Secret
	ClientSecretFile string
	Scopes           []string
	Extensions       []string // name=value
	Region           string
}

// Debezium is what only records that must be byte for byte those of Debezium need.
type Debezium struct {
	Name              string
	ContextHeaders    bool
	Decimals          string
	Times             string
	Intervals         string
	HStore            string
	Binary            string
	MoneyDigits       int
	FieldNames        string
	ExpandPayload     bool
	ExpandNulls       bool
	ExpandEmptyArrays bool
	Exact             bool
}

// Admin is where the relay shows itself.
type Admin struct {
	Listen string   // empty: nowhere
	Hosts  []string // names it answers to
}

// Tracing is where spans go. Without an Endpoint there are none.
type Tracing struct {
	Endpoint    string
	Headers     Secret // of headers or headers_file, whichever is in force
	HeadersFile string
	Resource    []string // name=value
	MessageKey  bool
	TLS         TracingTLS
}

// TracingTLS is the encryption of connections to the receiver of spans.
type TracingTLS struct {
	CAFile   string
	CertFile string
	KeyFile  string
}

// Log is what is logged and how.
type Log struct {
	Level  string
	Format string
}

// isSet reports whether the user, and not a default, gave the key.
func (c *Config) isSet(path string) bool {
	return c.settings[path].source > fromDefault
}

// AdminHosts returns the names to which the admin server answers: those of admin.hosts, and the one of admin.listen.
func (c *Config) AdminHosts() []string {
	host, _, _ := net.SplitHostPort(c.Admin.Listen)
	if _, err := netip.ParseAddr(host); host == "" || err == nil {
		return c.Admin.Hosts
	}
	return append(slices.Clone(c.Admin.Hosts), host)
}

// ListensByDefault reports whether nobody has said where the admin server listens.
func (c *Config) ListensByDefault() bool { return !c.isSet("admin.listen") }
