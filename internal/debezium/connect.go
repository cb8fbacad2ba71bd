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
			key: "errors.tolerance", ours: "on_bad_record", verdicts: []Verdict{Same, Part, Refused},
			doc: "`none` is `stop`; `all`, which drops rows, is `dead-letter`.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				switch strings.ToLower(e.value) {
				case "none":
					return Same, "on_bad_record: stop"
				case "all":
					return m.deadLetters()
				}
				return Refused, fmt.Sprintf("%q is not one of none, all", e.value)
			},
		},
		note("errors.log.*", "What cannot be delivered is always said."),
		note("errors.retry.*", "What heals by itself is tried for ever."),
		note("errors.deadletterqueue.*", "Source connectors have none."),
		{
			key: "exactly.once.support", verdicts: []Verdict{Note, Refused}, doc: "`requested`. A relay delivers at least once: nothing twice after a clean stop, little after a crash.",
			apply: func(_ *mapping, e entry) (Verdict, string) {
				if strings.EqualFold(e.value, "requested") {
					return Note, "delivery is at least once: nothing twice after a clean stop, little after a crash"
				}
				return Refused, "delivery is at least once; take it out if consumers know an event by its id, or keep Debezium"
			},
		},
		note("transaction.boundary", "Delivery is at least once."),
		note("transaction.boundary.interval.ms", "Delivery is at least once."),
		note("config.action.reload", "Secrets are read again for each connection where they come from files."),
		note("connector.plugin.version", "There are no plugins."),
		note("offsets.storage.topic", "The position is kept in `position_topic`."),
		note("offset.flush.*", "The position is reported every second."),
		note("offset.storage*", "The position is kept in `position_topic`."),
	}
	return append(rules, topicCreationRules()...)
}

func topicCreationRules() []rule {
	size := func(key, ours string, field func(*topicsFile) *int) rule {
		return rule{
			key: "topic.creation.default." + key, ours: "sink.kafka.create_topics." + ours, verdicts: []Verdict{Same, Refused}, doc: "The same.",
			apply: func(m *mapping, e entry) (Verdict, string) {
				n, refusal := number(e, -1)
				if refusal != "" || n == 0 {
					return Refused, "a number of at least 1 is needed, or -1"
				}
				*field(m.topics()) = n
				return Same, fmt.Sprintf("sink.kafka.create_topics.%s: %d", ours, n)
			},
		}
	}
	partitions := size("partitions", "partitions", func(t *topicsFile) *int { return &t.Partitions })
	partitions.verdicts = append(partitions.verdicts, Part)
	partitions.doc = "The same. Without it the broker makes missing topics if it is allowed to; so does the relay, with -1."
	partitions.absent = func(m *mapping) (Verdict, string) {
		m.topics()
		return Part, "sink.kafka.create_topics.partitions: -1, so that missing topics are made as the broker makes them; without it they must exist"
	}
	return []rule{
		partitions,
		size("replication.factor", "replication_factor", func(t *topicsFile) *int { return &t.ReplicationFactor }),
		{
			key: "topic.creation.groups", verdicts: []Verdict{Part}, doc: "Topics are made alike: those of the group `default`.",
			apply: func(*mapping, entry) (Verdict, string) {
				return Part, "topics are made alike, as topic.creation.default says: make beforehand those that are to differ"
			},
		},
		{
			key: "topic.creation.*", verdicts: []Verdict{Part}, doc: "Topics are made with the broker's defaults.",
			apply: func(*mapping, entry) (Verdict, string) {
				return Part, "topics are made with the broker's defaults: make beforehand those that are to differ"
			},
		},
	}
}

// topics returns how missing topics are made: at first as the broker does it.
func (m *mapping) topics() *topicsFile {
	if m.out.Sink.Kafka.CreateTopics == nil {
		m.out.Sink.Kafka.CreateTopics = &topicsFile{Partitions: -1, ReplicationFactor: -1}
	}
	return m.out.Sink.Kafka.CreateTopics
}

func serverRules() []rule {
	return []rule{
		{
			key: "server.sink.type", ours: "sink.kafka", verdicts: []Verdict{Part, Refused}, doc: "`debezium.sink.type`: `kafka`. A header that is NULL is there and null, where Debezium Server leaves it out.",
			apply: func(_ *mapping, e entry) (Verdict, string) {
				if e.value == "kafka" {
					return Part, "sink.kafka; a header that is NULL is there and null, where Debezium Server leaves it out"
				}
				return Refused, fmt.Sprintf("sink %q cannot be written to; only kafka can", e.value)
			},
		},
		note("server.sink.*", "`debezium.sink.…` beside the producer's settings: part of the verdict on `debezium.sink.type`."),
		note("server.format.schemas.enable", "`debezium.format.schemas.enable`: part of the verdicts on the formats."),
		refuse("server.format.*", "A format that cannot be carried over."),
		note("server.quarkus.*", "About the Java process."),
		note("server.*", "About the process of Debezium Server."),
	}
}
