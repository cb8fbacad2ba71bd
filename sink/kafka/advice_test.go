package kafka

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// What an operator has to do while records wait: the command of an administrator of Kafka, or the keys of the configuration.
func TestAdviceOnDeniedAccess(t *testing.T) {
	login := Config{Brokers: []string{"k:9093", "l:9093"}, SASL: &SASL{User: "cdc"}}
	for name, tc := range map[string]struct {
		cfg   Config
		cause error
		want  string // part of it
	}{
		"topic": {
			Config{Brokers: []string{"k:9092"}},
			errorOf(sarama.ErrTopicAuthorizationFailed),
			"kafka-acls.sh --bootstrap-server k:9092 --add --allow-principal 'User:<the relay's>' --operation Describe --operation Write --topic t.",
		},
		"topic, with a login": {
			login,
			fmt.Errorf("%w: %w", errAccess, errorOf(sarama.ErrTopicAuthorizationFailed)),
			"kafka-acls.sh --bootstrap-server k:9093 --command-config <an administrator's> --add --allow-principal 'User:cdc' ",
		},
		"wrong password":    {login, errorOf(sarama.ErrSASLAuthenticationFailed), "sink.kafka.sasl"},
		"wrong certificate": {login, fmt.Errorf("%w: x509", errAccess), "sink.kafka.tls"},
		"no leader":         {login, errorOf(sarama.ErrLeaderNotAvailable), ""},
		"no connection":     {login, errors.New("EOF"), "that the brokers run"},
	} {
		if got := tc.cfg.adviseRetry("t", tc.cause); !strings.Contains(got, tc.want) || got != "" && tc.want == "" {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A broker that rejects the connection has not looked at any right of the user.
func TestAdviceOnALogin(t *testing.T) {
	for name, cause := range map[string]error{"TLS": x509.UnknownAuthorityError{}, "login": sarama.ErrSASLAuthenticationFailed} {
		err := connectError("k:9093", cause, replied, true, true)
		advised, ok := errors.AsType[sink.Advised](err)
		if !errors.Is(err, sink.ErrAccess) || !ok || !strings.Contains(advised.Advice(), "sink.kafka.tls") || strings.Contains(advised.Advice(), "Write") {
			t.Errorf("%s: %v: %+v", name, err, advised)
		}
	}
}
