package debezium

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// A file is the resulting configuration, in the order in which it is written. Omitted keys have our default.
type file struct {
	Name            string        `yaml:"name"`
	Source          sourceFile    `yaml:"source"`
	Outbox          outboxFile    `yaml:"outbox"`
	Headers         headersFile   `yaml:"headers"`
	Sink            sinkFile      `yaml:"sink"`
	OnBadRecord     string        `yaml:"on_bad_record,omitempty"`
	DeadLetterTopic string        `yaml:"dead_letter_topic,omitempty"`
	Position        *positionFile `yaml:"position,omitempty"`
	Debezium        *debeziumFile `yaml:"debezium,omitempty"`
}

type sourceFile struct {
	DSN          string `yaml:"dsn"`
	Publication  string `yaml:"publication"`
	Slot         string `yaml:"slot"`
	Create       string `yaml:"create"`
	InitialCopy  bool   `yaml:"initial_copy,omitempty"`
	SlotFailover bool   `yaml:"slot_failover,omitempty"`
}

type outboxFile struct {
	Tables           []string     `yaml:"tables,omitempty,flow"`
	Messages         []string     `yaml:"messages,omitempty,flow"`
	Columns          columnsFile  `yaml:"columns"`
	Topic            string       `yaml:"topic"`
	TopicRules       []ruleFile   `yaml:"topic_rules,omitempty"`
	TombstoneOnEmpty bool         `yaml:"tombstone_on_empty,omitempty"`
	OnMissingColumn  string       `yaml:"on_missing_column,omitempty"`
	OnUpdate         string       `yaml:"on_update"`
	Place            []placeFile  `yaml:"place,omitempty"`
	Encoding         encodingFile `yaml:"encoding"`
}

type columnsFile struct {
	ID            string `yaml:"id"`
	Key           string `yaml:"key"`
	Route         string `yaml:"route"`
	Type          string `yaml:"type"` // always empty: Debezium has no such header by itself
	Payload       string `yaml:"payload"`
	Headers       string `yaml:"headers"` // the same
	Timestamp     string `yaml:"timestamp,omitempty"`
	SchemaVersion string `yaml:"schema_version,omitempty"`
}

type ruleFile struct {
	Match   string `yaml:"match"`
	Replace string `yaml:"replace"`
}

type placeFile struct {
	Column string `yaml:"column"`
	To     string `yaml:"to"`
	As     string `yaml:"as,omitempty"`
}

type encodingFile struct {
	Key     string `yaml:"key"`
	Value   string `yaml:"value"`
	Headers string `yaml:"headers"`
}

type headersFile struct {
	LSN    bool     `yaml:"lsn"` // Debezium has no such header
	Static []string `yaml:"static,flow,omitempty"`
}

type sinkFile struct {
	Kafka     kafkaFile      `yaml:"kafka,omitempty"`
	JetStream *jetStreamFile `yaml:"jetstream,omitempty"`
	RabbitMQ  *rabbitFile    `yaml:"rabbitmq,omitempty"`
	SQS       *sqsFile       `yaml:"sqs,omitempty"`
	Webhook   *webhookFile   `yaml:"webhook,omitempty"`
}

type jetStreamFile struct {
	Servers  []string `yaml:"servers,flow"`
	User     string   `yaml:"user,omitempty"`
	Password string   `yaml:"password,omitempty"`
}

type rabbitFile struct {
	Servers  []string `yaml:"servers,flow"`
	VHost    string   `yaml:"vhost,omitempty"`
	User     string   `yaml:"user,omitempty"`
	Password string   `yaml:"password,omitempty"`
}

type sqsFile struct {
	Region   string `yaml:"region,omitempty"`
	Profile  string `yaml:"profile,omitempty"`
	Endpoint string `yaml:"sqs_endpoint,omitempty"`
}

type webhookFile struct {
	Origins []string `yaml:"origins,flow"`
}

type positionFile struct {
	File string `yaml:"file"`
}

type kafkaFile struct {
	Brokers         []string    `yaml:"brokers,flow"`
	ClientID        string      `yaml:"client_id,omitempty"`
	Compression     string      `yaml:"compression,omitempty"`
	MaxMessageBytes int         `yaml:"max_message_bytes,omitempty"`
	CreateTopics    *topicsFile `yaml:"create_topics,omitempty"`
	TLS             *tlsFile    `yaml:"tls,omitempty"`
	SASL            *saslFile   `yaml:"sasl,omitempty"`
}

type topicsFile struct {
	Partitions        int `yaml:"partitions"`
	ReplicationFactor int `yaml:"replication_factor"`
}

type tlsFile struct {
	Enabled  bool   `yaml:"enabled"`
	CAFile   string `yaml:"ca_file,omitempty"`
	CertFile string `yaml:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file,omitempty"`
}

type saslFile struct {
	Mechanism    string   `yaml:"mechanism"`
	User         string   `yaml:"user,omitempty"`
	Password     string   `yaml:"password,omitempty"`
	TokenURL     string   `yaml:"token_url,omitempty"`
	ClientID     string   `yaml:"client_id,omitempty"`
	ClientSecret string   `yaml:"client_secret,omitempty"`
	Scopes       []string `yaml:"scopes,omitempty,flow"`
	Region       string   `yaml:"region,omitempty"`
}

type debeziumFile struct {
	Name              string `yaml:"name,omitempty"`
	ContextHeaders    bool   `yaml:"context_headers,omitempty"`
	Decimals          string `yaml:"decimals,omitempty"`
	Times             string `yaml:"times,omitempty"`
	Intervals         string `yaml:"intervals,omitempty"`
	HStore            string `yaml:"hstore,omitempty"`
	Binary            string `yaml:"binary,omitempty"`
	KeyDelegate       string `yaml:"key_delegate,omitempty"`
	ValueDelegate     string `yaml:"value_delegate,omitempty"`
	MoneyDigits       *int   `yaml:"money_digits,omitempty"`
	FieldNames        string `yaml:"field_names,omitempty"`
	ExpandPayload     bool   `yaml:"expand_payload,omitempty"`
	ExpandNulls       bool   `yaml:"expand_nulls,omitempty"`
	ExpandEmptyArrays bool   `yaml:"expand_empty_arrays,omitempty"`
	Exact             bool   `yaml:"exact,omitempty"`
}

// encode returns the file as YAML, after a comment that says what it was imported from.
func (f *file) encode(from string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Created by outbox-cdc import debezium from connector %q.\n", from)
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(f); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return out.Bytes(), nil
}
