package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

func TestSQS(t *testing.T) {
	for name, tc := range map[string]struct {
		set  []string
		want sqs.Config
	}{
		"defaults": {
			[]string{"sink.sqs.region", "eu-central-1", "outbox.topic", "${route}.fifo"},
			sqs.Config{Region: "eu-central-1", Destination: "${route}.fifo", MaxBytes: 262_144, Batches: 16, WindowBytes: 8 << 20, WindowRecords: 50_000},
		},
		"all": {
			[]string{
				"outbox.topic", "arn:aws:sns:eu-west-1:123456789012:${route}.fifo", "sink.sqs.profile", "relay", "sink.sqs.sqs_endpoint", "http://127.0.0.1:9324",
				"sink.sqs.sns_endpoint", "https://sns.example.com", "sink.sqs.max_message_bytes", "1048576", "sink.sqs.batches_in_flight", "4",
				"sink.sqs.window.bytes", "5", "sink.sqs.window.records", "6",
			},
			sqs.Config{
				Profile: "relay", Destination: "arn:aws:sns:eu-west-1:123456789012:${route}.fifo", SQSEndpoint: "http://127.0.0.1:9324",
				SNSEndpoint: "https://sns.example.com", MaxBytes: 1 << 20, Batches: 4, WindowBytes: 5, WindowRecords: 6,
			},
		},
	} {
		cfg, err := Load(Sources{Flags: flagsOf(tc.set...)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := cfg.SQS()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if cfg.BrokerName() != "Amazon SQS and SNS" || cfg.BrokerAddresses()[0] != got.String() {
			t.Errorf("%s: broker %q at %q", name, cfg.BrokerName(), cfg.BrokerAddresses())
		}
	}
}

// TestSQSWithoutKeys: an empty section is enough, because everything can come from the environment of AWS.
func TestSQSWithoutKeys(t *testing.T) {
	cfg, err := Load(Sources{File: file(t, "relay.yaml", []byte("source: {dsn: host=localhost}\noutbox: {topic: '${route}'}\nsink: {sqs: {}}\n"))})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := cfg.Broker(); err != nil || b.String() != "Amazon SQS" {
		t.Errorf("broker %v, %v", b, err)
	}
}

func TestSQSMistakes(t *testing.T) {
	for _, set := range [][]string{
		{"sink.sqs.region", "eu-central-1"}, // the default of outbox.topic
		{"outbox.topic", "orders", "sink.sqs.region", "Frankfurt"},
		{"outbox.topic", "orders", "sink.sqs.max_message_bytes", "1048577"},
		{"outbox.topic", "orders", "sink.sqs.sqs_endpoint", "sqs.example.com"},
		{"outbox.topic", "orders", "sink.sqs.tls.ca_file", "/does/not/exist"},
		{"outbox.topic", "orders", "sink.sqs.region", "eu-west-1", "on_bad_record", "dead-letter", "dead_letter_topic", "dead letters"},
	} {
		cfg, err := Load(Sources{Flags: flagsOf(set...)})
		if err == nil {
			_, err = cfg.Broker()
		}
		if err == nil {
			t.Errorf("%q is accepted", set)
		}
	}
}
