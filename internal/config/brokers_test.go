package config

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A relay has one broker. Each broker says what it does not support.
func TestBrokers(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		environ    []string
		want       string // the error; empty: none
	}{
		{name: "two", file: "sink: {kafka: {brokers: [a:1]}, webhook: {url: http://localhost}}\n", want: "sink: sink.kafka (c.yaml:1) and sink.webhook (c.yaml:1) are configured; a relay has one broker, so keep one section"},
		{
			name: "two, one of the environment", file: "sink:\n  kafka:\n    brokers: [a:1]\n", environ: []string{"OUTBOX_CDC_SINK_WEBHOOK_TYPE=v"},
			want: "sink: sink.kafka (c.yaml:2) and sink.webhook (OUTBOX_CDC_SINK_WEBHOOK_TYPE) are configured; a relay has one broker, so keep one section",
		},
		{name: "an empty section counts", file: "sink: {kafka: {brokers: [a:1]}, webhook: }\n", want: "sink: sink.kafka (c.yaml:1) and sink.webhook (c.yaml:1) are configured; a relay has one broker, so keep one section"},
		{name: "no place for positions", file: "sink.webhook.url: http://localhost\nposition_topic: p\n", want: "c.yaml:2: position_topic: has no effect: Webhook has no place for position records; set position.file instead"},
		{name: "no positions", file: "sink.webhook.url: http://localhost\nposition_topic: ''\n"},
		{name: "what needs positions", file: "sink.webhook.url: http://localhost\nsource.create: slot\n", want: "c.yaml:2: source.create: slot needs position.file, because without it a later start cannot tell whether the slot was lost"},
		{name: "positions in a file", file: "sink.webhook.url: http://localhost\nsource.create: slot\nposition.file: /p\n"},
		{name: "a file for Kafka", file: "sink.kafka.brokers: [a:1]\nposition.file: /p\n", want: "c.yaml:2: position.file: has no effect: Kafka stores the position record, under the name in position_topic"},
		{name: "park", file: "sink.webhook.url: http://localhost\non_bad_record: park\n", want: "c.yaml:2: on_bad_record: park needs Kafka, because the relay reads the records of a parked key back in order; with Webhook use stop or dead-letter"},
		{name: "partitions", file: "sink.webhook.url: http://localhost\noutbox.place: [{column: c, to: partition}]\n", want: "c.yaml:2: outbox.place: item 1: partition needs Kafka; Webhook has no partitions"},
		{name: "names of Kafka", file: "sink.kafka.brokers: [a:1]\nposition_topic: a b\n", want: `c.yaml:2: position_topic: "a b" contains ' '; Kafka allows letters, digits, '.', '_' and '-'`},
		{name: "a dead-letter topic that is not used yet", file: "sink.kafka.brokers: [a:1]\ndead_letter_topic: a b\n", want: `c.yaml:2: dead_letter_topic: "a b" contains ' '; Kafka allows letters, digits, '.', '_' and '-'`},
		{name: "names of another broker", file: "sink.webhook.url: http://localhost\noutbox.topic: events/a b\ndead_letter_topic: dead/letters\non_bad_record: dead-letter\n"},
		{name: "a dead-letter destination", file: "sink.webhook.url: http://localhost\ndead_letter_topic: /dead\non_bad_record: dead-letter\n", want: `c.yaml:2: dead_letter_topic: "/dead" has an empty segment, or a slash at its beginning or end`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, tt.environ)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// The printed configuration has the section of the broker only, so that it can be loaded again. Position records are in
// the file, and rows may be sent to what would be the position topic of Kafka.
func TestOtherBroker(t *testing.T) {
	cfg, err := load(t, "source.dsn: host=localhost dbname=app\nsink.webhook: {url: http://localhost, user: u, password: s3cret}\nposition.file: /p\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := cfg.WriteYAML(&printed); err != nil || strings.Contains(printed.String(), "kafka") || strings.Contains(printed.String(), "s3cret") {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	if _, err := load(t, printed.String(), nil); err != nil {
		t.Error(err)
	}
	relay, err := cfg.Relay()
	if err != nil {
		t.Fatal(err)
	}
	if relay.Positions != (position.Place{File: "/p"}) || !slices.Equal(relay.Route.Reserved, []string{"outbox.dead-letter"}) || cfg.BrokerName() != "Webhook" {
		t.Errorf("%+v", relay)
	}
}

// A broker may store position records if it has what reads them back.
func TestPositionsAreAtBrokersThatReadThem(t *testing.T) {
	for kind, settings := range map[string]string{
		"kafka": "{brokers: [a:1]}", "jetstream": "{servers: [a:1]}", "rabbitmq": "{servers: [a:1], user: u, password: p}",
		"redis_streams": "{addresses: [a:1]}", "sqs": "{region: eu-west-1}", "webhook": "{url: 'http://a'}",
	} {
		cfg, err := load(t, "sink."+kind+": "+settings+"\noutbox.topic: orders.fifo\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		broker, err := cfg.Broker()
		if err != nil {
			t.Fatal(err)
		}
		reads := false
		if opened, err := sink.OpenReader(broker, slog.New(slog.DiscardHandler)); err == nil {
			_, reads = opened.(sink.PositionReader)
			opened.Close()
		} else if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		if stores := cfg.broker().stores; cfg.broker().kind != kind || stores != reads {
			t.Errorf("%s: positions are at the broker: %v, they can be read there: %v", kind, stores, reads)
		}
	}
}

// The debezium keys are printed all together: if one of them is set, or if an encoding depends on them.
func TestDebeziumKeysArePrintedTogether(t *testing.T) {
	for file, want := range map[string]bool{
		"":                            false,
		"debezium: {money_digits: 3}": true,
		"outbox: {encoding: {value: json-schema}}": true,
	} {
		cfg, err := load(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		var printed strings.Builder
		if err := cfg.WriteYAML(&printed); err != nil {
			t.Fatal(err)
		}
		for _, k := range cfg.debeziumKeys() {
			line := "\n  " + strings.TrimPrefix(k.path, "debezium.") + ": "
			if k.def != nil && strings.Contains(printed.String(), line) != want {
				t.Errorf("%q: prints %s: %t, want %t", file, k.path, !want, want)
			}
		}
	}
}
