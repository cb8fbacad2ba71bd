package debezium

import (
	"fmt"
	"strings"
)

func connectRules() []rule {
	rules := []rule{
		note("tasks.max", "Always one."),
		note("tasks.max.enforce", "Always one task."),
		{
			key: "errors.tolerance", ours: "on_bad_record", verdicts: []verdict{same, partial, rejected},
			doc: "`none` is `stop`; `all`, which drops rows, is `dead-letter`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch strings.ToLower(e.value) {
				case "none":
					return same, "on_bad_record: stop"
				case "all":
					return m.deadLetters()
				}
				return rejected, fmt.Sprintf("%q is not one of none, all", e.value)
			},
		},
		note("errors.log.*", "The relay always reports bad rows."),
		note("errors.retry.*", "The relay retries temporary errors without limit."),
		note("errors.deadletterqueue.*", "Source connectors have none."),
		note("exactly.once.support", "With Kafka, each row is stored once, also after a crash, and records are in no transaction."),
		note("transaction.boundary", "Records are in no transaction."),
		note("transaction.boundary.interval.ms", "Records are in no transaction."),
		note("config.action.reload", "The relay reads secrets in files again for each connection."),
		note("connector.plugin.version", "There are no plugins."),
		note("offsets.storage.topic", "The relay stores its own position."),
		note("offset.flush.*", "The relay confirms its position every second."),
		{
			key: "offset.storage", verdicts: []verdict{noted, partial}, doc: "The relay stores its own position. At the takeover it can read Debezium's from Kafka Connect or from a file.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if m.offsets() == "" {
					return partial, "only offsets in a file or of Kafka Connect can be read: the relay resends what Debezium sent since it last confirmed a position to its slot"
				}
				return noted, "the relay stores its own position"
			},
		},
		note("offset.storage.*", "The relay stores its own position."),
	}
	return append(rules, topicCreationRules()...)
}

func topicCreationRules() []rule {
	size := func(key, ours string, field func(*topicsFile) *int) rule {
		return rule{
			key: "topic.creation.default." + key, ours: "sink.kafka.create_topics." + ours, verdicts: []verdict{same, rejected}, doc: "The same.",
			apply: func(m *mapping, e entry) (verdict, string) {
				n, refusal := number(e, -1)
				if refusal != "" || n == 0 {
					return rejected, "a number of at least 1 is required, or -1"
				}
				*field(m.topics()) = n
				return same, fmt.Sprintf("sink.kafka.create_topics.%s: %d", ours, n)
			},
		}
	}
	partitions := size("partitions", "partitions", func(t *topicsFile) *int { return &t.Partitions })
	partitions.verdicts = append(partitions.verdicts, partial)
	partitions.doc = "The same. Without it the broker may create missing topics; the relay creates them with -1 partitions."
	partitions.absent = func(m *mapping) (verdict, string) {
		m.topics()
		return partial, "sink.kafka.create_topics.partitions: -1, so the relay creates missing topics with the broker's defaults; without it they must exist"
	}
	return []rule{
		forSink(sinkKafka, partitions)[0],
		size("replication.factor", "replication_factor", func(t *topicsFile) *int { return &t.ReplicationFactor }),
		{
			key: "topic.creation.groups", verdicts: []verdict{partial}, doc: "All topics get the settings of the group `default`.",
			apply: func(*mapping, entry) (verdict, string) {
				return partial, "all topics get the settings of topic.creation.default; create topics with other settings beforehand"
			},
		},
		{
			key: "topic.creation.*", verdicts: []verdict{partial}, doc: "The relay creates topics with the broker's defaults.",
			apply: func(*mapping, entry) (verdict, string) {
				return partial, "the relay creates topics with the broker's defaults; create topics with other settings beforehand"
			},
		},
	}
}

// topics returns the settings for creating topics. By default, the broker creates them.
func (m *mapping) topics() *topicsFile {
	if m.out.Sink.Kafka.CreateTopics == nil {
		m.out.Sink.Kafka.CreateTopics = &topicsFile{Partitions: -1, ReplicationFactor: -1}
	}
	return m.out.Sink.Kafka.CreateTopics
}

func serverRules() []rule {
	rules := []rule{
		{
			key: "server.sink.type", ours: "sink", verdicts: []verdict{partial, rejected},
			doc: "`debezium.sink.type`: `kafka`, `nats-jetstream`, `rabbitmq`, `sqs` and `http`. The report says what differs in the messages. Other sinks write messages in which consumers would find other fields.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if text := anotherSink(e.value); text != "" {
					return rejected, text
				}
				return partial, m.saySink()
			},
		},
	}
	rules = append(rules, sinkRules()...)
	return append(rules,
		note("server.sink.*", "Other keys of `debezium.sink.…`: part of the verdict on `debezium.sink.type`."),
		note("server.format.schemas.enable", "`debezium.format.schemas.enable`: part of the verdicts on the formats."),
		note("server.format.key", "`debezium.format.key.class` counts."),
		note("server.format.value", "`debezium.format.value.class` counts."),
		note("server.format.header", "`debezium.format.header.class` counts."),
		refuse("server.format.*", "A format that the relay does not support."),
		note("server.quarkus.*", "A setting of the Java process."),
		note("server.%*", "Does not count in Quarkus' profile `prod`, in which Debezium Server runs unless QUARKUS_PROFILE is set. There, a key with `%prod.`, or `%{dev,prod}.`, counts in place of the key without it."),
		note("server.*", "A setting of the process of Debezium Server."),
	)
}
