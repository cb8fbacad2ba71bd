package bench

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// kafkaAccess returns what the consumer needs to reach Kafka.
func kafkaAccess(cfg kafka.Config) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if cfg.TLS != nil {
		encryption, err := cfg.TLS()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(encryption))
	}
	if cfg.SASL != nil {
		opts = append(opts, kgo.SASL(mechanism(cfg.SASL)))
	}
	return opts, nil
}

func mechanism(s *kafka.SASL) sasl.Mechanism {
	secret := func(ctx context.Context) (string, error) {
		if s.Secret == nil {
			return s.Password, nil
		}
		return s.Secret(ctx)
	}
	forScram := func(ctx context.Context) (scram.Auth, error) {
		password, err := secret(ctx)
		return scram.Auth{User: s.User, Pass: password}, err
	}
	switch s.Mechanism {
	case "OAUTHBEARER":
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := secret(ctx)
			return oauth.Auth{Token: token, Extensions: s.Extensions}, err
		})
	case "PLAIN":
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			password, err := secret(ctx)
			return plain.Auth{User: s.User, Pass: password}, err
		})
	case "SCRAM-SHA-256":
		return scram.Sha256(forScram)
	}
	return scram.Sha512(forScram)
}

// kafkaSettings is the part of a configuration that a relay under measurement shares with the real
// one, secrets included. What is empty is left to the defaults.
func kafkaSettings(k config.Kafka) map[string]any {
	full := map[string]any{
		"sink.kafka.connections_per_broker": k.ConnectionsPerBroker,
		"sink.kafka.exactly_once":           k.ExactlyOnce,
		"sink.kafka.window.bytes":           k.Window.Bytes,
		"sink.kafka.window.records":         k.Window.Records,
	}
	if k.TLS.Enabled {
		full["sink.kafka.tls.enabled"], full["sink.kafka.tls.insecure_skip_verify"] = true, k.TLS.InsecureSkipVerify
	}
	for name, text := range map[string]string{
		"compression": k.Compression, "partitioner": k.Partitioner,
		"tls.ca_file": k.TLS.CAFile, "tls.cert_file": k.TLS.CertFile, "tls.key_file": k.TLS.KeyFile, "tls.server_name": k.TLS.ServerName,
		"sasl.mechanism": k.SASL.Mechanism, "sasl.user": k.SASL.User, "sasl.password": string(k.SASL.Password),
		"sasl.token_file": k.SASL.TokenFile, "sasl.token_url": k.SASL.TokenURL,
		"sasl.client_id": k.SASL.ClientID, "sasl.client_secret": string(k.SASL.ClientSecret), "sasl.region": k.SASL.Region,
	} {
		if text != "" {
			full["sink.kafka."+name] = text
		}
	}
	for name, items := range map[string][]string{"sasl.scopes": k.SASL.Scopes, "sasl.extensions": k.SASL.Extensions} {
		if len(items) > 0 {
			full["sink.kafka."+name] = items
		}
	}
	return full
}
