package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

const (
	kafkaKind = "kafka"

	atTLS  = "sink.kafka.tls."
	atSASL = "sink.kafka.sasl."
)

func kafkaBroker() broker {
	return broker{
		kind: kafkaKind, title: "Kafka", system: "kafka", stores: true,
		parks: true, partitions: true, fences: true, batches: true,
		names: func(*Config) encode.Names { return kafka.Names{} },
		check: (*Config).checkKafka,
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.Kafka()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn:      (*Config).kafkaWarnings,
		addresses: func(c *Config) []string { return c.Sink.Kafka.Brokers },
		reloads: []replaced{
			{section: atSASL, paths: []string{atSASL + "password", atSASL + "password_file", atSASL + "client_secret", atSASL + "client_secret_file", atSASL + "token_file"}},
			replacedTLS(atTLS),
		},
	}
}

// checkKafka reports keys of sink.kafka that contradict each other or others.
func (c *Config) checkKafka() error {
	k := c.Sink.Kafka
	errs := []error{c.checkPorts("sink.kafka.brokers", 1, k.Brokers...)}
	add := func(err error) { errs = append(errs, err) }
	if illegal := (kafka.Names{}).Illegal(c.PositionTopic); illegal != "" && c.PositionTopic != "" {
		add(c.invalid("position_topic", "%q %s", c.PositionTopic, illegal))
	}
	if c.OnBadRecord == park && c.PositionTopic == "" {
		add(c.invalid("on_bad_record", "park needs position_topic, where the relay stores which keys are parked"))
	}
	_, err := c.kafkaLogin()
	add(err)
	if topics := k.CreateTopics; topics.ReplicationFactor != -1 && topics.Partitions == 0 {
		add(c.invalid("sink.kafka.create_topics.replication_factor", "has no effect: sink.kafka.create_topics.partitions is not set"))
	}
	_, err = c.encryption(atTLS)
	add(err)
	return join(errs...)
}

func (c *Config) kafkaWarnings() []string {
	var out []string
	k := c.Sink.Kafka
	remote := slices.ContainsFunc(k.Brokers, func(broker string) bool {
		host, _, _ := net.SplitHostPort(broker)
		return !isThisMachine(host)
	})
	switch {
	case k.TLS.Enabled && k.TLS.InsecureSkipVerify:
		out = append(out, "the certificates of the Kafka brokers are not verified")
	case k.TLS.Enabled, !remote:
	case k.SASL.Mechanism == saslPlain:
		out = append(out, "the Kafka password is not encrypted on the network")
	case k.SASL.Mechanism == saslBearer:
		out = append(out, "the Kafka token is not encrypted on the network")
	case !c.isSet(atTLS + "enabled"):
		out = append(out, "records to Kafka are not encrypted on the network: set sink.kafka.tls.enabled to true, or to false to accept it")
	}
	if u, err := url.Parse(k.SASL.TokenURL); err == nil && u.Scheme == "http" && !isThisMachine(u.Hostname()) {
		out = append(out, "the client secret is not encrypted on the network: sink.kafka.sasl.token_url is not https")
	}
	return out
}

// Kafka returns the settings of sink.kafka, or an [*Error] that names every missing key.
func (c *Config) Kafka() (kafka.Config, error) {
	k := c.Sink.Kafka
	encryption, tlsErr := c.encryption(atTLS)
	login, loginErr := c.kafkaLogin()
	var brokersErr error
	if len(k.Brokers) == 0 {
		brokersErr = missing("sink.kafka.brokers")
	}
	if err := join(brokersErr, tlsErr, loginErr); err != nil {
		return kafka.Config{}, err
	}
	cfg := kafka.Config{
		Brokers:              k.Brokers,
		ClientID:             c.clientID(),
		Compression:          k.Compression,
		Partitioner:          k.Partitioner,
		TLS:                  encryption,
		SASL:                 login,
		WindowBytes:          k.Window.Bytes,
		WindowRecords:        k.Window.Records,
		ConnectionsPerBroker: k.ConnectionsPerBroker,
		MaxMessageBytes:      k.MaxMessageBytes,
	}
	if k.CreateTopics.Partitions != 0 {
		cfg.CreateTopics = &kafka.TopicSpec{
			Partitions:        int32(k.CreateTopics.Partitions),
			ReplicationFactor: int16(k.CreateTopics.ReplicationFactor),
		}
	}
	if err := cfg.Validate(); err != nil {
		return kafka.Config{}, c.invalid("sink.kafka", "%v", err)
	}
	return cfg, nil
}

// kafkaLogin returns the settings of the login, nil if there is none. Each login reads secrets from files again;
// kafkaLogin reads them once to validate them.
func (c *Config) kafkaLogin() (*kafka.SASL, error) {
	s := c.Sink.Kafka.SASL
	if err := c.checkLogin(); err != nil || s.Mechanism == "" {
		return nil, err
	}
	login := &kafka.SASL{Mechanism: s.Mechanism, User: s.User}
	switch {
	case s.Mechanism == saslMSK: // a form of OAUTHBEARER
		login.Mechanism = saslBearer
		login.Secret = bearer.Reuse(func(ctx context.Context) (string, time.Time, error) { return bearer.MSK(ctx, s.Region) })
	case s.Mechanism == saslBearer && s.TokenFile != "":
		if _, err := c.readToken(); err != nil {
			return nil, err
		}
		login.Secret = func(context.Context) (string, error) {
			token, err := c.now().readToken()
			return token, later(err)
		}
	case s.Mechanism == saslBearer:
		login.Secret = c.tokenEndpoint()
	default:
		login.Secret = func(context.Context) (string, error) { return c.currentSecret(atSASL + "password") }
	}
	for _, extension := range s.Extensions {
		if login.Extensions == nil {
			login.Extensions = make(map[string]string)
		}
		name, value, _ := strings.Cut(extension, "=")
		login.Extensions[name] = value
	}
	return login, nil
}

// tokenEndpoint returns a function that requests tokens from token_url.
func (c *Config) tokenEndpoint() func(context.Context) (string, error) {
	s := c.Sink.Kafka.SASL
	get := bearer.Reuse(bearer.ClientCredentials{
		URL: s.TokenURL, ID: s.ClientID, Scopes: s.Scopes,
		Secret: func() (string, error) { return c.currentSecret(atSASL + "client_secret") },
	}.Token)
	return func(ctx context.Context) (string, error) {
		token, err := get(ctx)
		if errors.Is(err, bearer.ErrRefused) {
			err = fmt.Errorf("%w: %w", sink.ErrAccess, err)
		}
		return token, err
	}
}

// readToken returns the content of token_file.
func (c *Config) readToken() (string, error) {
	file := c.Sink.Kafka.SASL.TokenFile
	data, err := os.ReadFile(file) //nolint:gosec // which file is the operator's choice
	if err != nil {
		return "", c.invalid(atSASL+"token_file", "%s", fileReason(err))
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", c.invalid(atSASL+"token_file", "%s does not contain a token", file)
	}
	return token, nil
}

// checkLogin reports keys that the mechanism requires and that are missing, and keys without effect.
func (c *Config) checkLogin() error {
	s := c.Sink.Kafka.SASL
	needs, takes, because := s.keys()
	var errs []error
	for _, name := range []string{"user", "password", "token_file", "token_url", "client_id", "client_secret", "scopes", "extensions", "region"} {
		given := !c.field(atSASL+name).IsZero() || c.files[atSASL+name] != ""
		needed := slices.Contains(needs, name)
		switch {
		case needed && !given && name == "token_url":
			errs = append(errs, c.invalid(atSASL+"mechanism", "requires %stoken_url or %stoken_file", atSASL, atSASL))
		case needed && !given:
			errs = append(errs, c.invalid(atSASL+"mechanism", "requires %s%s", atSASL, name))
		case given && !needed && !slices.Contains(takes, name):
			errs = append(errs, c.invalid(atSASL+name, "has no effect: %s%s", atSASL, because))
		}
	}
	if s.Mechanism == saslMSK && !c.Sink.Kafka.TLS.Enabled {
		errs = append(errs, c.invalid(atSASL+"mechanism", "requires %senabled", atTLS))
	}
	return join(errs...)
}

// keys returns the keys that the login requires, the others that it uses, and the reason.
func (s SASL) keys() (needs, takes []string, because string) {
	because = "mechanism is " + s.Mechanism
	switch {
	case s.Mechanism == "":
		return nil, nil, "mechanism is not set"
	case s.Mechanism == saslMSK:
		return []string{"region"}, nil, because
	case s.Mechanism == saslBearer && s.TokenFile != "":
		return []string{"token_file"}, []string{"extensions"}, "token_file is given"
	case s.Mechanism == saslBearer:
		return []string{"token_url", "client_id", "client_secret"}, []string{"scopes", "extensions"}, because
	}
	return []string{"user", "password"}, nil, because
}
