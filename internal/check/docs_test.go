package check

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "rewrite docs/check.md")

// TestDocs: the page lists every condition.
func TestDocs(t *testing.T) {
	var want strings.Builder
	heading := func(text string) {
		fmt.Fprintf(&want, "\n%s\n\n| condition | for each | met if | also by run |\n|---|---|---|---|\n", text)
	}
	row := func(d definition) {
		run := ""
		if d.atStart {
			run = "yes"
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", d.name, d.object, d.met, run)
	}
	group := ""
	for _, d := range definitions(nil) {
		if d.group != group {
			group = d.group
			heading("### " + group)
		} else if d.group == "" {
			t.Errorf("%+v", d)
		}
		row(d)
	}
	for _, b := range []struct {
		title string
		sink.Broker
	}{
		{"Kafka", kafka.Config{}},
		{"NATS JetStream", jetstream.Config{}},
		{"RabbitMQ", rabbitmq.Config{}},
		{"Redis Streams", redisstreams.Config{}},
		{"Amazon SQS and SNS", sqs.Config{}},
		{"Webhooks", webhook.Config{}},
	} {
		heading("#### " + b.title)
		for _, d := range sinkDefinitions(b.Broker) {
			row(d)
		}
	}
	doctest.CheckPart(t, "../../docs/check.md", "conditions", strings.TrimPrefix(want.String(), "\n"), *update)
}
