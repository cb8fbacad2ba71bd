package config

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

const (
	atTLS  = "sink.kafka.tls."
	atSASL = "sink.kafka.sasl."
)

// Kafka returns the settings of the sink, or an [*Error] that names every missing key.
func (c *Config) Kafka() (kafka.Config, error) {
	k := c.Sink.Kafka
	encryption, tlsErr := c.kafkaTLS()
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
		ExactlyOnce:          k.ExactlyOnce,
		TransactionTimeout:   k.TransactionTimeout,
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

// kafkaTLS returns a function that reads the TLS files for each connection, nil if TLS is not enabled. Without TLS,
// other keys of the section are an error: who sets a certificate does not expect plain text. kafkaTLS reads the files
// once to validate them.
func (c *Config) kafkaTLS() (func() (*tls.Config, error), error) {
	if !c.Sink.Kafka.TLS.Enabled {
		return nil, c.withoutEffect(atTLS, atTLS+"enabled is not true")
	}
	if _, err := c.readKafkaTLS(); err != nil {
		return nil, err
	}
	return func() (*tls.Config, error) {
		cfg, err := c.now().readKafkaTLS()
		return cfg, later(err)
	}, nil
}

func (c *Config) readKafkaTLS() (*tls.Config, error) {
	cfg, err := c.certificates(atTLS)
	if err == nil {
		cfg.ServerName = c.Sink.Kafka.TLS.ServerName
		cfg.InsecureSkipVerify = c.Sink.Kafka.TLS.InsecureSkipVerify
	}
	return cfg, err
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
