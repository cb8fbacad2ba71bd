package debezium

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink/jetstream"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/rabbitmq"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

// Types of Debezium Server's sinks that can be imported, as in debezium.sink.type.
const (
	sinkKafka     = "kafka"
	sinkJetStream = "nats-jetstream"
	sinkRabbitMQ  = "rabbitmq"
	sinkSQS       = "sqs"
	sinkHTTP      = "http"
)

// positionDir is where the relay stores its position if the broker cannot.
const positionDir = "/var/lib/outbox-cdc"

// anotherSink returns why a sink of Debezium Server cannot be imported, or "". Messages must have the same destination and
// the same body; the relay may add headers.
func anotherSink(kind string) string {
	const byHand = "; consumers would have to change. To change them, configure the relay by hand: "
	switch kind {
	case sinkKafka, sinkJetStream, sinkRabbitMQ, sinkSQS, sinkHTTP:
		return ""
	case "redis":
		return "redis: Debezium Server's entries have one field whose name is the key (or, extended, key, value and headers in capital letters)," +
			" and the relay's have key, payload, id, …" + byHand + "docs/redis-streams.md"
	case "sns":
		return "sns: Debezium Server writes attributes and body without the converters, and takes group and deduplication id from headers" + byHand + "docs/sqs.md"
	case "rabbitmqstream":
		return "rabbitmqstream: it speaks RabbitMQ's stream protocol, and the relay AMQP 0-9-1, in which messages have headers" + byHand + "docs/rabbitmq.md"
	case "":
		return "debezium.sink.type is required: it says where the records go"
	}
	return fmt.Sprintf("the relay has no sink %q; it has Kafka, NATS JetStream, RabbitMQ, Redis Streams, SQS and SNS, and webhooks", kind)
}

// sink returns the type of the sink.
func (m *mapping) sink() string {
	if !m.in.server {
		return sinkKafka
	}
	return m.value("server.sink.type")
}

// hasSink reports whether a rule is about the sink of the configuration.
func (m *mapping) hasSink(r rule) bool {
	return r.sink == "" || r.sink == m.sink()
}

// forSink returns the rules as rules that apply only with one sink.
func forSink(kind string, rules ...rule) []rule {
	for i := range rules {
		rules[i].sink = kind
	}
	return rules
}

// sinkRules returns the rules for the sinks of Debezium Server other than Kafka:
// https://debezium.io/documentation/reference/stable/operations/debezium-server.html#_sink_configuration
func sinkRules() []rule {
	return slices.Concat(jetStreamRules(), rabbitRules(), sqsRules(), httpRules())
}

// secretText returns a rule for a text that may refer to the environment.
func secretText(key, ours string, field func(*mapping) *string) rule {
	return rule{
		key: key, ours: ours, verdicts: []verdict{same}, doc: "The same.",
		apply: func(m *mapping, e entry) (verdict, string) {
			value, names := m.refs.placeholders(e.value, "sink."+e.key[strings.LastIndexAny(e.key, ".")+1:])
			*field(m) = value
			return same, ours + setThem(names)
		},
	}
}

func (m *mapping) jetStream() *jetStreamFile {
	if m.out.Sink.JetStream == nil {
		m.out.Sink.JetStream = &jetStreamFile{}
	}
	return m.out.Sink.JetStream
}

func jetStreamRules() []rule {
	const at, ours = "server.sink.nats-jetstream.", "sink.jetstream."
	credentials := refuse(at+"auth.jwt", "Write JWT and seed into a `.creds` file, and name it in `sink.jetstream.credentials_file`.")
	seed := credentials
	seed.key = at + "auth.seed"
	return forSink(sinkJetStream,
		rule{
			key: at + "url", ours: ours + "servers", verdicts: []verdict{same, rejected}, doc: "The same, as `host:port`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				for _, server := range splitList(e.value) {
					address, problem := hostPort(server, "nats://", "4222")
					if problem != "" {
						return rejected, problem
					}
					m.jetStream().Servers = append(m.jetStream().Servers, address)
				}
				return same, ours + "servers: " + strings.Join(m.jetStream().Servers, ", ")
			},
			absent: func(*mapping) (verdict, string) { return rejected, "required" },
		},
		secretText(at+"auth.user", ours+"user", func(m *mapping) *string { return &m.jetStream().User }),
		secretText(at+"auth.password", ours+"password", func(m *mapping) *string { return &m.jetStream().Password }),
		credentials, seed,
		refuse(at+"auth.tls.*", "A Java keystore cannot be read. Export it to PEM files for `sink.jetstream.tls`."),
		rule{
			key: at + "create-stream", verdicts: []verdict{noted, partial}, doc: "The relay creates no streams; an existing one stays.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if on, _ := boolean(e); on {
					return partial, "the relay creates no streams: keep DebeziumStream, or create another one with the subjects"
				}
				return noted, "streams are never created"
			},
		},
	)
}

// hostPort returns the address of a server without its scheme, and with a port.
func hostPort(server, scheme, port string) (address, problem string) {
	address = strings.TrimSuffix(strings.TrimPrefix(server, scheme), "/")
	if strings.ContainsAny(address, "@/") {
		return "", "only addresses such as host:" + port + " are supported, with user and password in their own keys"
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), port)
	}
	return address, ""
}

func (m *mapping) rabbit() *rabbitFile {
	if m.out.Sink.RabbitMQ == nil {
		m.out.Sink.RabbitMQ = &rabbitFile{User: "guest", Password: "guest"}
	}
	return m.out.Sink.RabbitMQ
}

func rabbitRules() []rule {
	const at, ours = "server.sink.rabbitmq.", "sink.rabbitmq."
	part := func(key string) rule { return note(at+key, "Part of the verdict on `debezium.sink.type`.") }
	return forSink(sinkRabbitMQ,
		rule{
			key: at + "connection.host", ours: ours + "servers", verdicts: []verdict{same, rejected}, doc: "The same, with `connection.port` (5672).",
			apply: func(m *mapping, e entry) (verdict, string) {
				address, problem := hostPort(e.value, "", portOf(m, at))
				if problem != "" {
					return rejected, problem
				}
				m.rabbit().Servers = []string{address}
				return same, ours + "servers: " + address
			},
			absent: func(m *mapping) (verdict, string) {
				m.rabbit().Servers = []string{"localhost:" + portOf(m, at)}
				return same, ours + "servers: localhost:" + portOf(m, at)
			},
		},
		part("connection.port"),
		secretText(at+"connection.username", ours+"user", func(m *mapping) *string { return &m.rabbit().User }),
		secretText(at+"connection.password", ours+"password", func(m *mapping) *string { return &m.rabbit().Password }),
		text(at+"connection.virtual.host", ours+"vhost", func(m *mapping) *string { return &m.rabbit().VHost }),
		only(at+"connection.ssl.enabled", false, "Configure `sink.rabbitmq.tls` for TLS.", "TLS with a Java trust store: write sink.rabbitmq.tls and remove this key"),
		refuse(at+"connection.uri", "Use `connection.host`, `connection.port`, `connection.username`, `connection.password` and `connection.virtual.host`."),
		rule{
			key: at + "exchange", ours: "outbox.topic", verdicts: []verdict{same, rejected}, doc: "The same; by default the name of the topic.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if strings.Contains(e.value, "/") {
					return rejected, "an exchange with a slash in its name is not supported"
				}
				return same, "outbox.topic"
			},
		},
		part("routingKey"), part("routingKeyFromTopicName"),
		rule{
			key: at + "routingKey.source", ours: "outbox.topic", verdicts: []verdict{same, rejected}, doc: "`static`, `topic`, or `key` with a key in `simplestring`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch strings.ToLower(e.value) {
				case "key":
					if m.out.Outbox.Encoding.Key != encString {
						return rejected, "the routing key is the converted key, with its quotes or schema: it needs debezium.format.key=simplestring"
					}
				case "static", "topic":
				default:
					return rejected, fmt.Sprintf("%q is not one of static, topic, key", e.value)
				}
				return same, "outbox.topic"
			},
		},
		only(at+"autoCreateRoutingKey", false, "The relay declares no queues.", "the relay declares no queues: declare the queue, and remove this key"),
	)
}

func portOf(m *mapping, at string) string {
	if port := m.value(at + "connection.port"); port != "" {
		return port
	}
	return "5672"
}

func (m *mapping) sqs() *sqsFile {
	if m.out.Sink.SQS == nil {
		m.out.Sink.SQS = &sqsFile{}
	}
	return m.out.Sink.SQS
}

// matching is text for a field whose values match pattern.
func matching(key, ours, pattern string, field func(*mapping) *string) rule {
	r := text(key, ours, field)
	r.verdicts = append(r.verdicts, rejected)
	valid, take := compileOnce(pattern), r.apply
	r.apply = func(m *mapping, e entry) (verdict, string) {
		if !valid.MatchString(e.value) {
			return rejected, fmt.Sprintf("%q is not valid: %s takes what matches %s", e.value, ours, pattern)
		}
		return take(m, e)
	}
	return r
}

func sqsRules() []rule {
	const at, ours = "server.sink.sqs.", "sink.sqs."
	return forSink(sinkSQS,
		matching(at+"region", ours+"region", sqs.RegionPattern, func(m *mapping) *string { return &m.sqs().Region }),
		matching(at+"endpoint", ours+"sqs_endpoint", sqs.EndpointPattern, func(m *mapping) *string { return &m.sqs().Endpoint }),
		text(at+"credentials.profile", ours+"profile", func(m *mapping) *string { return &m.sqs().Profile }),
		rule{
			key: at + "queue.url", ours: "outbox.topic", verdicts: []verdict{same, rejected}, doc: "The same: all records go to this queue.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if problem := (sqs.Names{}).Illegal(e.value); problem != "" {
					return rejected, problem
				}
				m.sqs()
				return same, "outbox.topic: " + e.value
			},
			absent: func(*mapping) (verdict, string) { return rejected, "required" },
		},
		note(at+"fifo.message.group.id", "Records of a key keep their order: the key is the group. Debezium Server has one group for all."),
	)
}

// names returns the rules for destinations of the sink.
func (m *mapping) names() encode.Names {
	switch m.sink() {
	case sinkJetStream:
		return jetstream.Names{}
	case sinkRabbitMQ:
		return rabbitmq.Names{}
	case sinkSQS:
		return sqs.Names{}
	case sinkHTTP:
		return m.httpNames()
	}
	return kafka.Names{}
}

// setDestination sets outbox.topic for sinks whose destination is not the name of the topic, after the topic is known.
func (m *mapping) setDestination() {
	switch m.sink() {
	case sinkRabbitMQ:
		m.setExchange()
	case sinkSQS:
		m.out.Outbox.Topic = literal(m.value("server.sink.sqs.queue.url"))
		m.out.Outbox.TopicRules = nil
	case sinkHTTP:
		if m.out.Sink.Webhook == nil {
			return
		}
		m.out.Outbox.Topic = literal(m.value(httpAt + "url"))
		m.out.Outbox.TopicRules = nil
	default:
		return
	}
	m.out.Position = &positionFile{File: positionDir + "/" + relayName(m.out.Name)}
	m.report.before = append(m.report.before, "create the directory "+positionDir+" for the relay's position, where it survives the process")
	if m.out.DeadLetterTopic != "" {
		m.find("errors.tolerance", rejected, "`all` needs a destination for bad rows: remove it, and write on_bad_record and dead_letter_topic yourself")
	}
}

// setExchange sets outbox.topic to exchange and routing key.
func (m *mapping) setExchange() {
	const at = "server.sink.rabbitmq."
	exchange, key := literal(m.value(at+"exchange")), literal(m.value(at+"routingKey"))
	topic := m.out.Outbox.Topic
	fromTopic, _ := boolean(entry{value: m.value(at + "routingKeyFromTopicName")})
	source := strings.ToLower(m.value(at + "routingKey.source"))
	switch {
	case source == "topic" || source == "" && fromTopic && key == "":
		source, key = "topic", topic
	case source == "key":
		key = "${" + m.out.Outbox.Columns.Key + "}"
	}
	switch {
	case len(m.out.Outbox.TopicRules) == 0:
	case exchange != "" && source != "topic":
		m.out.Outbox.TopicRules = nil // the topic has no effect
	default:
		m.find(m.shown(at+"exchange"), rejected, "outbox.topic has exchange and routing key, and a rule that rewrites the topic would rewrite both: use route.topic.replacement without expressions")
	}
	if exchange == "" {
		exchange = topic
	}
	m.out.Outbox.Topic = exchange + "/" + key
}

// shown returns a key as written in the file.
func (m *mapping) shown(key string) string { return cmp.Or(m.entries[key].shown, key) }

// literal returns a text as a template without placeholders.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// saySink says what differs in the messages of the sink.
func (m *mapping) saySink() string {
	switch m.sink() {
	case sinkJetStream:
		return "sink.jetstream, with the same subjects and payloads. The relay adds the headers Nats-Msg-Id, outbox_key and outbox_timestamp;" +
			" Debezium Server omits NULL headers and drops rows without payload, and the relay sends them (name_null, outbox_null)"
	case sinkRabbitMQ:
		return "sink.rabbitmq, with the same exchange, routing key, body and headers. The relay adds message_id, type, timestamp and the header outbox_key;" +
			" for a row without payload the body is empty, with the header outbox_null, and not the text of null.value. position.file: the relay needs a file for its position"
	case sinkSQS:
		return "sink.sqs, with the same queue and body. The relay adds attributes (id, outbox_key, …), and in a FIFO queue the group is the key," +
			" so only records of a key keep their order. position.file: the relay needs a file for its position"
	case sinkHTTP:
		return "sink.webhook, with the same URL and body. Headers change: X-DEBEZIUM-ID and the others of headers.prefix, in base64 unless headers.encode.base64 is false, become" +
			" ce-id, ce-type (of eventType), Outbox-NAME and the other headers of a CloudEvent, percent-encoded: receivers that read headers have to change." +
			" Records of different keys are sent at the same time; Debezium Server omits rows without a value, and the relay sends them without a body. position.file: the relay needs a file for its position"
	}
	return "sink.kafka; unless headers are JSON, one that is NULL is there and null, where Debezium Server leaves it out"
}
