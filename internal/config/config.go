package config

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A Config is the effective configuration that [Load] returns. Each field is the value of a key, which
// declare describes: Source.DSNFile is source.dsn_file.
type Config struct {
	Name            string
	Source          Source
	Outbox          Outbox
	Headers         Headers
	Sink            Sink
	Debezium        Debezium
	OnBadRecord     string
	MaxParkedKeys   int
	DeadLetterTopic string

	MissingTopicTimeout time.Duration
	PositionTopic       string
	Position            Position
	StartupTimeout      time.Duration
	DrainTimeout        time.Duration
	Admin               Admin
	Tracing             Tracing
	Log                 Log

	fields   map[string]reflect.Value // by path
	settings map[string]setting       // effective values by path, without the contents of secret files
	sections map[string]string        // where the file has a section, by path
	files    map[string]string        // files of secrets, by the path of the secret

	file      string     // see File
	arguments string     // see Arguments
	reloading *reloading // nil until Load returns
}

// File returns the path of the file from which the configuration was read, or nothing if it has none.
func (c *Config) File() string { return c.file }

// Arguments returns what [Sources.Arguments] returns for the sources of c.
func (c *Config) Arguments() string { return c.arguments }

// Source is the Postgres database that the relay reads.
type Source struct {
	DSN              Secret // of dsn or dsn_file, whichever is effective
	DSNFile          string
	PasswordCommand  []string // program and arguments
	PasswordTimeout  time.Duration
	PasswordLifetime time.Duration
	RDSIAMRegion     string
	Publication      string
	Slot             string
	Create           string
	InitialCopy      bool
	InitialCopyWhere string
	SlotFailover     bool
	OnSlotLoss       string
	Lease            time.Duration
	WaitForSlot      bool
}

// Outbox describes how rows become records.
type Outbox struct {
	Tables           []string
	Messages         []string // prefixes
	Columns          encode.Columns
	Topic            string
	TopicRules       []encode.TopicRule
	TombstoneOnEmpty bool
	Place            []encode.Placement
	OnMissingColumn  string
	OnUpdate         string
	Encoding         Encoding
}

// Encoding is the encoding of each part of a record.
type Encoding struct{ Key, Value, Headers string }

// Headers are the optional headers of records.
type Headers struct {
	LSN    bool
	Static []string // name=value
}

// Position says where position records are, if the broker does not store them.
type Position struct{ File string }

// Sink is the destination of records: one of these.
type Sink struct {
	Kafka        Kafka
	JetStream    JetStream
	RabbitMQ     RabbitMQ
	RedisStreams RedisStreams
	SQS          SQS
	Webhook      Webhook
}

// Kafka is a Kafka cluster and the settings of the producer.
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

// CreateTopics are the settings of topics that the relay creates. If Partitions is 0, it creates none.
type CreateTopics struct{ Partitions, ReplicationFactor int }

// SQS is the access to Amazon SQS and Amazon SNS.
type SQS struct {
	Region          string
	Profile         string
	SQSEndpoint     string
	SNSEndpoint     string
	MaxMessageBytes int
	BatchesInFlight int
	TLS             Certificates
	Window          Window
}

// Webhook are HTTP receivers.
type Webhook struct {
	URL                    string
	Origins                []string
	Source                 string
	Type                   string
	ContentType            string
	SigningSecrets         Secret
	SigningSecretsFile     string
	Token                  Secret
	TokenFile              string
	User                   string
	Password               Secret
	PasswordFile           string
	RefusePrivateAddresses bool
	Proxy                  bool
	Timeout                time.Duration
	ConnectTimeout         time.Duration
	Concurrency            int
	MaxPayloadBytes        int
	CheckMethod            string
	TLS                    Certificates
	Window                 Window
}

// RedisStreams is a Redis server, a primary that Sentinel watches, or a cluster.
type RedisStreams struct {
	Addresses     []string
	Cluster       bool
	Database      int
	User          string
	Password      Secret
	PasswordFile  string
	CreateStreams bool
	MaxEntryBytes int
	Trim          RedisTrim
	Wait          RedisWait
	Sentinel      RedisSentinel
	Window        Window
	TLS           TLS
}

// RedisTrim says which entries of streams are removed.
type RedisTrim struct{ MaxLen, MaxWALBytes int }

// RedisWait says how many replicas must have a record.
type RedisWait struct {
	Replicas int
	Timeout  time.Duration
}

// RedisSentinel is how to ask Sentinels for the primary.
type RedisSentinel struct {
	Primary      string
	User         string
	Password     Secret
	PasswordFile string
}

// Window limits the unacknowledged records.
type Window struct{ Bytes, Records int }

// Certificates are the settings for TLS to a broker whose addresses say whether TLS is used.
type Certificates struct {
	CAFile             string
	CertFile           string
	KeyFile            string
	ServerName         string
	InsecureSkipVerify bool
}

// TLS are the settings for TLS to a broker.
type TLS struct {
	Enabled bool
	Certificates
}

// SASL are the settings of the login to Kafka. An empty Mechanism means no login. A secret is the effective one of the
// key and its file.
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

// Debezium are settings for records that must equal those of Debezium byte for byte.
type Debezium struct {
	Name              string
	ContextHeaders    bool
	Decimals          string
	Times             string
	Intervals         string
	HStore            string
	Binary            string
	KeyDelegate       string
	ValueDelegate     string
	MoneyDigits       int
	FieldNames        string
	ExpandPayload     bool
	ExpandNulls       bool
	ExpandEmptyArrays bool
	Exact             bool
}

// Admin are the settings of the admin server.
type Admin struct {
	Listen string   // empty: no admin server
	Hosts  []string // host names under which it responds
}

// Tracing are the settings for spans. Without an Endpoint there are none.
type Tracing struct {
	Endpoint    string
	Headers     Secret // of headers or headers_file, whichever is effective
	HeadersFile string
	Resource    []string // name=value
	MessageKey  bool
	TLS         TracingTLS
}

// TracingTLS are the settings for TLS to the tracing endpoint.
type TracingTLS struct{ CAFile, CertFile, KeyFile string }

// Log are the settings of the log.
type Log struct{ Level, Format string }

// isSet reports whether the key has a value other than its default.
func (c *Config) isSet(path string) bool {
	return c.settings[path].source > fromDefault
}

// AdminHosts returns the host names under which the admin server responds: those of admin.hosts, and that of admin.listen.
func (c *Config) AdminHosts() []string {
	host, _, _ := net.SplitHostPort(c.Admin.Listen)
	if _, err := netip.ParseAddr(host); host == "" || err == nil {
		return c.Admin.Hosts
	}
	return append(slices.Clone(c.Admin.Hosts), host)
}

// ListensByDefault reports whether admin.listen has its default.
func (c *Config) ListensByDefault() bool { return !c.isSet("admin.listen") }
