package config

import (
	"testing"
)

// TestArguments: another command gets what the command line said of the configuration, without what is secret.
func TestArguments(t *testing.T) {
	t.Parallel()
	for want, src := range map[string]Sources{
		"":                  {},
		"-c relay.yaml":     {File: "relay.yaml"},
		"-c 'my relay.yml'": {File: "my relay.yml"},
		"-c a.yaml --set source.slot=s --set sink.kafka.brokers=k1:9092,k2:9092 --set 'outbox.topic=it'\\''s'": {File: "a.yaml", Flags: []Setting{
			{Key: "source.dsn", Value: "host=db password=c4n4ry"},
			{Key: "source.slot", Value: "s"},
			{Key: "sink.kafka.brokers", Value: "k1:9092,k2:9092"},
			{Key: "outbox.topic", Value: "it's"},
		}},
		"--dsn … --set name=n": {Flags: []Setting{{Key: "name", Value: "n"}, {Key: "source.dsn", Value: "host=db password=c4n4ry"}}},
		"--set sink.jetstream.password=… --set nonsense=…": {Flags: []Setting{
			{Key: "sink.jetstream.password", Value: "c4n4ry"}, {Key: "nonsense", Value: "c4n4ry"},
		}},
	} {
		if got := src.Arguments(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
