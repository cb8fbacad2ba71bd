package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"
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
		"no connection":     {login, errors.New("EOF"), ""},
	} {
		if got := tc.cfg.adviseDenied("t", tc.cause); !strings.Contains(got, tc.want) || got != "" && tc.want == "" {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
