package config

import (
	"fmt"
	"os"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A Config is the effective configuration. [Load] makes it; its fields mirror the keys, whose
// meaning is said in keys.go.
type Config struct {
	Name            string        `koanf:"name"`
	Source          Source        `koanf:"source"`
	Outbox          Outbox        `koanf:"outbox"`
	Headers         Headers       `koanf:"headers"`
	Sink            Sink          `koanf:"sink"`
	Debezium        Debezium      `koanf:"debezium"`
	OnBadRecord     string        `koanf:"on_bad_record"`
	DeadLetterTopic string        `koanf:"dead_letter_topic"`
	PositionTopic   string        `koanf:"position_topic"`
	StartupTimeout  time.Duration `koanf:"startup_timeout"`
	DrainTimeout    time.Duration `koanf:"drain_timeout"`
	Admin           Admin         `koanf:"admin"`
	Tracing         Tracing       `koanf:"tracing"`
	Log             Log           `koanf:"log"`

	merged  *koanf.Koanf      // what was said, by path: without the contents of secret files
	origins map[string]origin // where the value in force comes from, by path
	files   map[string]string // of the secrets that come from one, by path

	reloading *reloading // of what Load has returned
}

// Source is where rows are read.
type Source struct {
	DSN          Secret `koanf:"dsn"` // of dsn or dsn_file, whichever is in force
	DSNFile      string `koanf:"dsn_file"`
	Publication  string `koanf:"publication"`
	Slot         string `koanf:"slot"`
	Create       bool   `koanf:"create"`
	CreateSlot   bool   `koanf:"create_slot"`
	InitialCopy  bool   `koanf:"initial_copy"`
	SlotFailover bool   `koanf:"slot_failover"`
	WaitForSlot  bool   `koanf:"wait_for_slot"`
}

// Outbox is how rows become records.
type Outbox struct {
	Tables           []string           `koanf:"tables"`
	Messages         []string           `koanf:"messages"` // prefixes
	Columns          Columns            `koanf:"columns"`
	Topic            string             `koanf:"topic"`
	TopicRules       []encode.TopicRule `koanf:"topic_rules"`
	TombstoneOnEmpty bool               `koanf:"tombstone_on_empty"`
	Place            []encode.Placement `koanf:"place"`
	OnMissingColumn  string             `koanf:"on_missing_column"`
	OnUpdate         string             `koanf:"on_update"`
	Encoding         Encoding           `koanf:"encoding"`
}

// Encoding is how values are written, by the part of the record.
type Encoding struct {
	Key     string `koanf:"key"`
	Value   string `koanf:"value"`
	Headers string `koanf:"headers"`
}

// Columns names the columns of an outbox table.
type Columns struct {
	ID      string `koanf:"id"`
	Key     string `koanf:"key"`
	Route   string `koanf:"route"`
	Type    string `koanf:"type"`
	Payload string `koanf:"payload"`

	Timestamp     string `koanf:"timestamp"`
	SchemaVersion string `koanf:"schema_version"`

	Headers      string `koanf:"headers"`
	TraceContext string `koanf:"trace_context"`
}

// Headers is which optional headers records carry.
type Headers struct {
	Position bool     `koanf:"position"`
	Static   []string `koanf:"static"` // name=value
}

// Sink is where records go.
type Sink struct {
	Kafka Kafka `koanf:"kafka"`
}

// Kafka is a Kafka cluster and how it is written to.
type Kafka struct {
	Brokers              []string     `koanf:"brokers"`
	ClientID             string       `koanf:"client_id"`
	Compression          string       `koanf:"compression"`
	Partitioner          string       `koanf:"partitioner"`
	CreateTopics         CreateTopics `koanf:"create_topics"`
	ConnectionsPerBroker int          `koanf:"connections_per_broker"`
	MaxMessageBytes      int          `koanf:"max_message_bytes"`
	Window               Window       `koanf:"window"`
	TLS                  TLS          `koanf:"tls"`
	SASL                 SASL         `koanf:"sasl"`
}

// CreateTopics is how missing topics are made; Partitions 0 means they are not.
type CreateTopics struct {
	Partitions        int `koanf:"partitions"`
	ReplicationFactor int `koanf:"replication_factor"`
}

// Window bounds what is sent and not yet acknowledged.
type Window struct {
	Bytes   int `koanf:"bytes"`
	Records int `koanf:"records"`
}

// TLS is the encryption of connections to Kafka.
type TLS struct {
	Enabled            bool   `koanf:"enabled"`
	CAFile             string `koanf:"ca_file"`
	CertFile           string `koanf:"cert_file"`
	KeyFile            string `koanf:"key_file"`
	ServerName         string `koanf:"server_name"`
	InsecureSkipVerify bool   `koanf:"insecure_skip_verify"`
}

// SASL is the login at Kafka; an empty Mechanism means none. Of a secret and its file, the
// secret is the content of whichever is in force.
type SASL struct {
	Mechanism        string   `koanf:"mechanism"`
	User             string   `koanf:"user"`
	Password         Secret   `koanf:"password"`
	PasswordFile     string   `koanf:"password_file"`
	TokenFile        string   `koanf:"token_file"`
	TokenURL         string   `koanf:"token_url"`
	ClientID         string   `koanf:"client_id"`
	ClientSecret     Secret   `koanf:"client_secret"`
	ClientSecretFile string   `koanf:"client_secret_file"`
	Scopes           []string `koanf:"scopes"`
	Extensions       []string `koanf:"extensions"` // name=value
	Region           string   `koanf:"region"`
}

// Debezium is what only records that must be byte for byte those of Debezium need.
type Debezium struct {
	Name              string `koanf:"name"`
	ContextHeaders    bool   `koanf:"context_headers"`
	Decimals          string `koanf:"decimals"`
	Times             string `koanf:"times"`
	Intervals         string `koanf:"intervals"`
	HStore            string `koanf:"hstore"`
	Binary            string `koanf:"binary"`
	MoneyDigits       int    `koanf:"money_digits"`
	FieldNames        string `koanf:"field_names"`
	ExpandPayload     bool   `koanf:"expand_payload"`
	ExpandNulls       bool   `koanf:"expand_nulls"`
	ExpandEmptyArrays bool   `koanf:"expand_empty_arrays"`
	Exact             bool   `koanf:"exact"`
}

// Log is what is logged and how.
type Log struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// Sources says where a configuration comes from.
type Sources struct {
	File    string    // path of a YAML file; empty: none
	Content []byte    // what File holds; nil: it is read
	Environ []string  // NAME=value as in [os.Environ]; OUTBOX_CDC_ variables are looked at, and those the file refers to
	Flags   []Setting // applied in this order
}

// A Setting is one key given on the command line.
type Setting struct {
	Key, Value string // lists are separated by commas
	Flag       string // how the user wrote it, for messages: --slot
}

// Load reads all sources and returns the merged configuration. Its error is an [*Error] with
// every problem found. What only some commands need is not required here but by the methods
// that need it.
func Load(src Sources) (*Config, error) {
	r := newReader()
	r.variables = src.Environ
	layers := [][]setting{r.defaults()}
	if src.File != "" {
		data := src.Content
		if data == nil {
			var err error
			if data, err = os.ReadFile(src.File); err != nil {
				return nil, &Error{Problems: []Problem{{Text: fmt.Sprintf("read configuration: %v", err)}}}
			}
		}
		layers = append(layers, r.file(src.File, data))
	}
	layers = append(layers, r.environ(src.Environ), r.flags(src.Flags))
	if err := r.err(); err != nil {
		return nil, err
	}
	cfg, err := merge(layers)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.reloading = cfg.remember()
	return cfg, nil
}

// merge lays one layer over the other. An error is a mistake in keys.go: values have been
// checked by then.
func merge(layers [][]setting) (*Config, error) {
	cfg := &Config{merged: koanf.New("."), origins: make(map[string]origin), files: make(map[string]string)}
	for i, layer := range layers {
		values := make(map[string]any, len(layer))
		for _, s := range layer {
			values[s.key.path] = s.value
			cfg.origins[s.key.path] = origin{layer: i, where: s.where}
		}
		if err := cfg.merged.Load(confmap.Provider(values, "."), nil); err != nil {
			return nil, fmt.Errorf("merge configuration: %w", err)
		}
	}
	err := cfg.merged.UnmarshalWithConf("", cfg, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{TagName: "koanf", ErrorUnused: true},
	})
	if err != nil {
		return nil, fmt.Errorf("merge configuration: %w", err)
	}
	return cfg, nil
}

// An origin is where a value comes from. Of two values the one of the higher layer is in
// force.
type origin struct {
	layer int
	where string // outbox-cdc.yaml:3, OUTBOX_CDC_SOURCE_SLOT, --slot; "default"
}

// isSet reports whether the user, and not a default, gave the key.
func (c *Config) isSet(path string) bool {
	o, ok := c.origins[path]
	return ok && o.layer > 0
}

// Origin returns where the value of a key comes from: file and line, variable, flag or
// "default"; empty where there is none.
func (c *Config) Origin(path string) string { return c.origins[path].where }
