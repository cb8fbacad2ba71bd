package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// A use is what a topic is for.
type use struct {
	topic     string
	needs     []kafka.Operation
	compacted bool         // it should be
	sample    *topicSample // of the records that go there; nil: rows are not what goes there
}

// uses returns the topics that are known, each once.
func (s *kafkaLook) uses() []use {
	var all []use
	for _, name := range s.sample.names() {
		all = append(all, use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationWrite}, sample: s.sample.topics[name]})
	}
	if name := s.Relay.PositionTopic; name != "" {
		all = append(all, use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationRead, kafka.OperationWrite}, compacted: true})
	}
	if name := s.Relay.DeadLetterTopic; name != "" && s.sample.topics[name] == nil {
		all = append(all, use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationWrite}, sample: s.largest()})
	}
	return all
}

// largest is a sample for the dead-letter topic, which has to take what the others take. A dead
// letter keeps its key and may have none.
func (s *kafkaLook) largest() *topicSample {
	var all topicSample
	for _, t := range s.sample.topics {
		all.largest = max(all.largest, t.largest)
		all.keyless += t.keyless
	}
	return &all
}

// topics judges the topics that are known.
func (s *kafkaLook) topics(ctx context.Context) {
	uses := s.uses()
	if len(s.sample.topics) == 0 && !s.short {
		s.unknown()
	}
	var names []string
	for _, u := range uses {
		names = append(names, u.topic)
	}
	var topics []*kafka.Topic
	if !s.ask(ctx, &s.report, "topic", strings.Join(names, ", "), func(ctx context.Context) (err error) {
		topics, err = s.inspector.Topics(ctx, names...)
		return err
	}) {
		return
	}
	for n, u := range uses {
		s.topic(ctx, u, topics[n])
	}
}

// unknown: the names come from rows, of which none is to be seen.
func (s *kafkaLook) unknown() {
	template := s.Relay.Route.Topic
	if s.cfg.CreateTopics != nil {
		s.ok("topic", template, "is created when its first row comes; no row was seen that tells its name")
		return
	}
	s.warn("topic", template, "no row was seen that tells the names, and a topic has to exist before its first row: rows wait for a missing one",
		"create the topics beforehand, or set sink.kafka.create_topics.partitions")
}

// topic judges one.
func (s *kafkaLook) topic(ctx context.Context, u use, t *kafka.Topic) {
	switch {
	case t.Missing:
		s.missing(ctx, u)
		return
	case t.Err != nil:
		found := t.Err.Error()
		fix := ""
		if kafka.IsRefusal(t.Err) {
			found = "the user may not see it: " + found
			fix = s.acl(operations(u.needs) + " --topic " + u.topic)
		}
		s.fail("topic", u.topic, found, fix)
		return
	}
	s.ok("topic", u.topic, fmt.Sprintf("exists; partitions: %d", t.Partitions))
	if t.Leaderless > 0 {
		s.fail("leaders", u.topic, fmt.Sprintf("%d of %d partitions have no leader: what goes there waits", t.Leaderless, t.Partitions), "start the brokers that have their replicas")
	} else {
		s.ok("leaders", u.topic, "every partition has one")
	}
	s.allowed(u, t)
	if t.Settings == nil {
		found := "the user may not read them: what follows from them is not known"
		if s.cfg.MaxMessageBytes == 0 {
			found += ", and batches are kept within 1,000,000 bytes"
		}
		s.warn("settings", u.topic, found, s.acl("--operation DescribeConfigs --topic "+u.topic))
		return
	}
	s.ok("settings", u.topic, "can be read")
	s.replicas(u, t)
	s.policy(u, t)
	s.limit(u, t)
	s.timestamps(u, t)
}

func operations(all []kafka.Operation) string {
	var texts []string
	for _, op := range all {
		texts = append(texts, "--operation "+op.String())
	}
	return strings.Join(texts, " ")
}

// missing says whether a topic would be created.
func (s *kafkaLook) missing(ctx context.Context, u use) {
	spec := s.cfg.CreateTopics
	replicas := min(len(s.brokers), 3)
	arguments := fmt.Sprintf("--create --topic %s --partitions 6 --replication-factor %d", u.topic, replicas)
	if u.compacted {
		spec = &kafka.TopicSpec{Partitions: 1, ReplicationFactor: -1}
		arguments = fmt.Sprintf("--create --topic %s --partitions 1 --replication-factor %d --config cleanup.policy=compact", u.topic, replicas)
	}
	create := s.tool("kafka-topics.sh", arguments)
	if spec == nil {
		s.fail("topic", u.topic, "does not exist, and rows for it wait", create+"; or set sink.kafka.create_topics.partitions")
		return
	}
	if s.short {
		return // a relay creates it, or says why not
	}
	limited, cancel := context.WithTimeout(ctx, s.each)
	defer cancel()
	err := s.inspector.MayCreate(limited, u.topic, *spec)
	switch {
	case err == nil:
		s.ok("topic", u.topic, "does not exist yet, and can be created")
	case kafka.IsRefusal(err):
		s.fail("topic", u.topic, "does not exist, and the user may not create it: "+oneLine(err), create+"; or "+s.acl("--operation Create --topic "+u.topic))
	default:
		s.fail("topic", u.topic, "does not exist, and cannot be created: "+oneLine(err), create)
	}
}

// allowed compares what the user may do with what the relay does.
func (s *kafkaLook) allowed(u use, t *kafka.Topic) {
	var lacking []kafka.Operation
	for _, op := range u.needs {
		allowed, known := t.Allows(op)
		if !known {
			s.ok("rights", u.topic, "the cluster does not tell them")
			return
		}
		if !allowed {
			lacking = append(lacking, op)
		}
	}
	if len(lacking) > 0 {
		s.fail("rights", u.topic, "the user lacks "+strings.ReplaceAll(strings.TrimPrefix(operations(lacking), "--operation "), " --operation ", " and "),
			s.acl(operations(lacking)+" --topic "+u.topic))
		return
	}
	s.ok("rights", u.topic, strings.ReplaceAll(strings.TrimPrefix(operations(u.needs), "--operation "), " --operation ", ", "))
}

// alter is the command that changes a topic's setting.
func (s *kafkaLook) alter(topic, setting, value string) string {
	if strings.Contains(value, ",") {
		value = "[" + value + "]"
	}
	return s.tool("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --add-config %s=%s", topic, setting, value))
}

// replicas judges how safe an acknowledged record is, and whether one can be acknowledged.
func (s *kafkaLook) replicas(u use, t *kafka.Topic) {
	insync, err := strconv.Atoi(t.Settings["min.insync.replicas"])
	if err != nil {
		return
	}
	const name = "min.insync.replicas"
	switch text := fmt.Sprintf("%d of %d replicas", insync, t.Replicas); {
	case insync > t.Replicas:
		s.fail(name, u.topic, fmt.Sprintf("%d, and there are %d replicas: nothing is ever acknowledged", insync, t.Replicas), s.alter(u.topic, name, strconv.Itoa(max(1, t.Replicas-1))))
	case insync > t.InSync:
		s.fail(name, u.topic, fmt.Sprintf("%d, and %d replicas are in sync: what goes there waits", insync, t.InSync), "start the brokers that have the other replicas")
	default:
		s.ok(name, u.topic, text)
	}
	durable := func(found, fix string) { s.warn("durability", u.topic, found, fix) }
	switch {
	case t.Replicas < 2:
		durable("one replica: what is acknowledged is lost with its disk", "kafka-reassign-partitions.sh gives it three; for a cluster of one broker there is nothing to do")
	case t.Settings["unclean.leader.election.enable"] == "true":
		durable("a replica that is behind may become leader: what was acknowledged is lost", s.alter(u.topic, "unclean.leader.election.enable", "false"))
	case insync < 2:
		durable(fmt.Sprintf("min.insync.replicas is %d: what one broker has acknowledged alone is lost with it", insync), s.alter(u.topic, name, "2"))
	case insync == t.Replicas:
		durable(fmt.Sprintf("min.insync.replicas is %d, as many as there are replicas: one broker less, and nothing is acknowledged", insync), s.alter(u.topic, name, strconv.Itoa(t.Replicas-1)))
	default:
		s.ok("durability", u.topic, fmt.Sprintf("%d replicas, of which %d acknowledge", t.Replicas, insync))
	}
}

// policy: a compacted topic takes no record without a key, and keeps the last one of each.
func (s *kafkaLook) policy(u use, t *kafka.Topic) {
	const name = "cleanup.policy"
	policy := t.Settings[name]
	compacted := slices.Contains(strings.Split(policy, ","), "compact")
	switch {
	case s.short && u.compacted: // a relay tells that itself
	case u.compacted && !compacted:
		s.warn(name, u.topic, policy+": the position expires", s.alter(u.topic, name, "compact"))
	case !u.compacted && compacted && u.sample.keyless > 0:
		s.fail(name, u.topic, fmt.Sprintf("%s, which takes no record without a key, and %d of the last rows have none", policy, u.sample.keyless), s.alter(u.topic, name, "delete"))
	case !u.compacted && compacted:
		s.warn(name, u.topic, policy+": of the events of one key only the last is kept, and one without a key is refused", s.alter(u.topic, name, "delete"))
	default:
		s.ok(name, u.topic, policy)
	}
}

// limit compares the largest record seen with what the topic takes.
func (s *kafkaLook) limit(u use, t *kafka.Topic) {
	const name = "max.message.bytes"
	limit, err := strconv.Atoi(t.Settings[name])
	if err != nil {
		return
	}
	wanted := s.cfg.MaxMessageBytes
	switch {
	case u.sample != nil && u.sample.largest > limit:
		found := fmt.Sprintf("%d, and one of the last rows makes a record of %d bytes", limit, u.sample.largest)
		fix := s.alter(u.topic, name, strconv.Itoa(2*u.sample.largest))
		if compression := s.cfg.Compression; compression != "" && compression != "none" {
			s.warn(name, u.topic, found+" before "+compression, fix)
			return
		}
		s.fail(name, u.topic, found, fix)
	case !u.compacted && wanted > limit:
		s.warn(name, u.topic, fmt.Sprintf("%d, and sink.kafka.max_message_bytes is %d: what lies between is refused", limit, wanted), s.alter(u.topic, name, strconv.Itoa(wanted)))
	case u.sample != nil && u.sample.largest > 0:
		s.ok(name, u.topic, fmt.Sprintf("%d, and the largest of the last records has %d", limit, u.sample.largest))
	default:
		s.ok(name, u.topic, strconv.Itoa(limit))
	}
}

// longOutage is how old rows may be that are sent when a relay comes back.
const longOutage = 24 * time.Hour

// timestamps: records have the time of their commit, which is long ago after an outage.
func (s *kafkaLook) timestamps(u use, t *kafka.Topic) {
	const name = "message.timestamp.before.max.ms"
	ms, err := strconv.ParseInt(t.Settings[name], 10, 64)
	switch {
	case err != nil || u.compacted:
	case t.Settings["message.timestamp.type"] == "LogAppendTime":
		s.ok(name, u.topic, "is for the timestamps of producers, and the topic gives its own")
	case time.Duration(min(ms, longOutage.Milliseconds()))*time.Millisecond < longOutage:
		s.warn(name, u.topic, fmt.Sprintf("%s: rows that were committed before that get the present time, and theirs in a header", time.Duration(ms)*time.Millisecond),
			s.tool("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --delete-config %s", u.topic, name)))
	default:
		s.ok(name, u.topic, "takes records of an outage of a day")
	}
}
