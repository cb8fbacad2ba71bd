package debezium

import (
	"strings"
	"testing"
)

// sinkKeys are the keys that a sink of Debezium Server needs.
var sinkKeys = map[string]string{
	sinkJetStream: "server.sink.nats-jetstream.url=nats://nats:4222\n",
	sinkRabbitMQ:  "server.sink.rabbitmq.exchange=events\n",
	sinkSQS:       "server.sink.sqs.queue.url=https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo\n",
	sinkHTTP:      "server.sink.http.url=https://hooks.example.com/orders\n",
}

func ofSink(kind string) string { return "server.sink.type=" + kind + "\n" + sinkKeys[kind] }

func sinkCases() []verdictCase {
	nats, rabbit, queue := ofSink(sinkJetStream)+"server.sink.nats-jetstream.", ofSink(sinkRabbitMQ)+"server.sink.rabbitmq.", ofSink(sinkSQS)+"server.sink.sqs."
	cases := []verdictCase{
		{changes: sinkKeys[sinkJetStream] + "server.sink.type=nats-jetstream", want: partial, text: "same subjects and payloads"},
		{changes: sinkKeys[sinkRabbitMQ] + "server.sink.type=rabbitmq", want: partial, text: "same exchange"},
		{changes: sinkKeys[sinkSQS] + "server.sink.type=sqs", want: partial, text: "the group is the key"},
		{changes: "server.sink.type=redis", want: rejected, text: "docs/redis-streams.md"},
		{changes: sinkKeys[sinkHTTP] + "server.sink.type=http", want: partial, text: "X-DEBEZIUM-ID"},
		{changes: "server.sink.type=sns", want: rejected, text: "docs/sqs.md"},
		{changes: "server.sink.type=rabbitmqstream", want: rejected, text: "stream protocol"},
		{changes: "server.sink.type=pravega", want: rejected, text: `no sink "pravega"`},
		{changes: "server.sink.type=", want: rejected, text: "required"},
		{changes: ofSink(sinkJetStream) + "server.sink.kafka.producer.acks=all", want: noted},

		{changes: nats + "url=nats://a:4222, b", want: same, text: "a:4222, b:4222"},
		{changes: nats + "url=nats://user:hunter2@a", want: rejected, text: "only addresses"},
		{changes: "server.sink.type=nats-jetstream\n-server.sink.nats-jetstream.url", want: rejected, text: "required"},
		{changes: nats + "auth.password=${env:P}\nserver.sink.nats-jetstream.auth.user=x", want: same},
		{changes: nats + "auth.user=u\nserver.sink.nats-jetstream.auth.password=${env:P}", want: same, text: "${P}"},
		{changes: nats + "create-stream=true", want: partial, text: "DebeziumStream"},
		{changes: nats + "create-stream=false", want: noted},

		{changes: rabbit + "exchange=a", want: same},
		{changes: rabbit + "exchange=a/b", want: rejected, text: "slash"},
		{changes: rabbit + "routingKey.source=topic", want: same},
		{changes: rabbit + "routingKey.source=key", want: same},
		{changes: jsonKey + rabbit + "routingKey.source=key", want: rejected, text: "simplestring"},
		{changes: rabbit + "routingKey.source=body", want: rejected, text: "not one of"},
		{changes: rabbit + "connection.host=mq", want: same, text: "mq:5672"},
		{changes: rabbit + "connection.port=5673\n-server.sink.rabbitmq.connection.host", want: same, text: "localhost:5673"},
		{changes: rabbit + "connection.host=a/b", want: rejected},
		{changes: rabbit + "connection.username=u", want: same},
		{changes: rabbit + "connection.password=${env:P}", want: same, text: "${P}"},
		{changes: rabbit + "connection.virtual.host=shop", want: same},
		{changes: rabbit + "connection.ssl.enabled=false", want: noted},
		{changes: rabbit + "connection.ssl.enabled=true", want: rejected, text: "sink.rabbitmq.tls"},
		{changes: rabbit + "autoCreateRoutingKey=false", want: noted},
		{changes: rabbit + "autoCreateRoutingKey=true", want: rejected, text: "declare the queue"},

		{changes: queue + "region=eu-central-1", want: same},
		{changes: queue + "endpoint=http://localhost:4566", want: same},
		{changes: queue + "credentials.profile=shop", want: same},
		{changes: queue + "queue.url=https://sqs.eu-central-1.amazonaws.com/123456789012/orders", want: same},
		{changes: queue + "region=eu-Central-1", want: rejected, text: "is not valid"},
		{changes: queue + "endpoint=sqs.eu-central-1.amazonaws.com", want: rejected, text: "is not valid"},
		{changes: queue + "queue.url=a b", want: rejected},
		{changes: "server.sink.type=sqs\n-server.sink.sqs.queue.url", want: rejected, text: "required"},

		{changes: ofSink(sinkHTTP) + "server.sink.http.url=http://localhost:8080/a/b", want: same, text: "outbox.topic: http://localhost:8080/a/b"},
		{changes: ofSink(sinkHTTP) + "server.sink.http.url=https://hooks.example.com/a?b=c", want: rejected, text: "the URL"},
		{changes: ofSink(sinkHTTP) + "server.sink.http.url=https://u:hunter2@hooks.example.com/a", want: rejected, text: "the URL"},
		{changes: ofSink(sinkHTTP) + "server.sink.http.url=hooks.example.com", want: rejected, text: "is not complete"},
		{changes: ofSink(sinkHTTP) + "server.sink.http.url=ftp://hooks.example.com/a", want: rejected, text: "not supported"},
		{changes: "server.sink.type=http\n-server.sink.http.url", want: rejected, text: "required"},
		{changes: ofSink(sinkHTTP) + jsonKey[:len(jsonKey)-1], want: partial, text: "ce-subject"},
		{changes: ofSink(sinkHTTP) + "header.converter=" + jsonConverter, want: partial, text: "headers: simple"},
		{changes: ofSink(sinkHTTP) + "server.sink.http.authentication.type=jwt", want: rejected, text: "token_file"},
	}
	for i := range cases {
		cases[i].server = true
	}
	return cases
}

// The destination of a message is the one that Debezium Server computes from exchange, routing key and topic.
func TestExchange(t *testing.T) {
	const at = "server.sink.rabbitmq."
	for _, tt := range [][2]string{
		{"", "events/"},
		{at + "routingKey=orders", "events/orders"},
		{at + "routingKey.source=topic", "events/outbox.event.${route}"},
		{at + "routingKeyFromTopicName=true", "events/outbox.event.${route}"},
		{at + "exchange=\n" + at + "routingKey=orders", "outbox.event.${route}/orders"},
		{at + "exchange=\n", "outbox.event.${route}/"},
		{at + "routingKey.source=key", "events/${aggregateid}"},
		{routerAt + "route.topic.regex=(a)b\n" + routerAt + "route.topic.replacement=c$1", "events/"},
		{at + "routingKey=o\n" + at + "routingKeyFromTopicName=true", "events/o"},
	} {
		changes, want := tt[0], tt[1]
		result := imported(t, ofSink(sinkRabbitMQ)+changes, true, Options{})
		if topic := "topic: " + want + "\n"; !strings.Contains(string(result.YAML), topic) {
			t.Errorf("%q: want %s\n%v\n%s", changes, topic, result.Report.Refused(), result.YAML)
		}
	}
	for _, changes := range []string{
		jsonKey + at + "routingKey.source=key", at + "routingKey.source=body", at + "exchange=a/b",
		at + "routingKey.source=topic\n" + routerAt + "route.topic.regex=(a)b\n" + routerAt + "route.topic.replacement=c$1",
		"errors.tolerance=all",
	} {
		if result := imported(t, ofSink(sinkRabbitMQ)+changes, true, Options{}); result.YAML != nil || len(result.Report.Refused()) == 0 {
			t.Errorf("%q is accepted:\n%s", changes, result.YAML)
		}
	}
}

const jsonKey = "key.converter=" + jsonConverter + "\n"
