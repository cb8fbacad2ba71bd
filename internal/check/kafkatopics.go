package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// A use is a topic and what the relay does with it.
type use struct {
	topic     string
	needs     []kafka.Operation
	compacted bool         // it must be compacted
	parks     bool         // it has the records of parked keys, until they are released
	sample    *topicSample // of the records for it; nil: it does not get rows
}

// uses returns the known topics, each once.
func (s *kafkaChecker) uses() []use {
	var all []use
	for _, name := range s.sample.names() {
		all = append(all, use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationWrite}, sample: s.sample.topics[name]})
	}
	if name := s.Relay.Positions.Topic; name != "" {
		all = append(all, use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationRead, kafka.OperationWrite}, compacted: true})
	}
	if name := s.Relay.DeadLetterTopic; name != "" && s.sample.topics[name] == nil {
		dead := use{topic: name, needs: []kafka.Operation{kafka.OperationDescribe, kafka.OperationWrite}, sample: s.largest()}
		if s.Relay.ParkedKeys > 0 {
			dead.parks, dead.needs = true, append(dead.needs, kafka.OperationRead)
		}
		all = append(all, dead)
	}
	return all
}

// largest returns a sample for the dead-letter topic, which must accept what the other topics accept. A dead letter
// keeps its key, if it has one.
func (s *kafkaChecker) largest() *topicSample {
	var all topicSample
	for _, t := range s.sample.topics {
		if sizeInKafka(t.largest) > sizeInKafka(all.largest) {
			all.largest = t.largest
		}
		all.keyless += t.keyless
	}
	return &all
}

// topics checks the known topics.
func (s *kafkaChecker) topics(ctx context.Context) {
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
	partitions := 0
	for n, u := range uses {
		s.topic(ctx, u, topics[n])
		if s.sample.topics[u.topic] != nil {
			partitions += topics[n].Partitions
		}
	}
	if !s.short {
		s.batches(partitions)
	}
}

// batches checks that the window has room for large batches of all partitions that the last rows may use.
func (s *kafkaChecker) batches(partitions int) {
	const name = "batches"
	if partitions == 0 {
		return
	}
	if found, fix := s.cfg.SmallBatches(partitions); found != "" {
		s.warn(name, "", found, fix)
		return
	}
	s.ok(name, "", fmt.Sprintf("sink.kafka.window.bytes is enough for the %d partitions of the last rows", partitions))
}

// unknown adds the condition of topics whose names come from rows, if no row could be read.
func (s *kafkaChecker) unknown() {
	template := s.Relay.Route.Topic
	if s.cfg.CreateTopics != nil {
		s.ok("topic", template, "created with its first record; no row was read, so the name is unknown")
		return
	}
	s.warn("topic", template, "no row was read (see the condition rows), so check does not know the names; the relay does not create topics, and records for a missing one wait",
		"create the topics, or set sink.kafka.create_topics.partitions; while a relay runs, status names the missing ones that records wait for")
}

// topic checks one topic.
func (s *kafkaChecker) topic(ctx context.Context, u use, t *kafka.Topic) {
	switch {
	case t.Missing:
		s.missing(ctx, u)
		return
	case t.Err != nil:
		found := t.Err.Error()
		fix := ""
		if kafka.IsRefusal(t.Err) {
			found = "the user lacks Describe, so its other rights are not known: " + found
			fix = s.grantAll(u)
		}
		s.fail("topic", u.topic, found, fix)
		return
	}
	s.ok("topic", u.topic, fmt.Sprintf("exists with %d partitions", t.Partitions))
	if t.Leaderless > 0 {
		s.fail("leaders", u.topic, fmt.Sprintf("%d of %d partitions have no leader, and records for them wait", t.Leaderless, t.Partitions), "start the brokers of their replicas")
	} else {
		s.ok("leaders", u.topic, "every partition has one")
	}
	s.allowed(u, t)
	if t.Settings == nil {
		found := "the user may not read them, so other conditions of the topic are unknown"
		if s.cfg.MaxMessageBytes == 0 {
			found += ", and the relay limits batches to 1,000,000 bytes"
		}
		s.warn("settings", u.topic, found, s.cfg.GrantCommand("--operation DescribeConfigs --topic "+u.topic))
		return
	}
	s.ok("settings", u.topic, "readable")
	s.replicas(u, t)
	s.policy(u, t)
	s.retention(u, t)
	s.limit(u, t)
	s.timestamps(u, t)
}

// grantAll returns the command that grants everything that the relay does with a topic, for one whose rights the cluster does not report
// before it exists, or before the user may see it.
func (s *kafkaChecker) grantAll(u use) string {
	rights := operations(u.needs)
	if s.readsBack(u) && !slices.Contains(u.needs, kafka.OperationRead) {
		rights += " --operation Read"
	}
	if u.compacted || s.cfg.CreateTopics != nil {
		rights += " --operation Create"
	}
	return s.cfg.GrantCommand(rights + " --operation DescribeConfigs --topic " + u.topic)
}

func operations(all []kafka.Operation) string {
	var texts []string
	for _, op := range all {
		texts = append(texts, "--operation "+op.String())
	}
	return strings.Join(texts, " ")
}

// missing checks whether the relay would create a topic.
func (s *kafkaChecker) missing(ctx context.Context, u use) {
	spec := s.cfg.CreateTopics
	replicas := min(len(s.brokers), 3)
	arguments := fmt.Sprintf("--create --topic %s --partitions 6 --replication-factor %d", u.topic, replicas)
	if u.compacted {
		spec = &kafka.TopicSpec{Partitions: 1, ReplicationFactor: -1}
		arguments = fmt.Sprintf("--create --topic %s --partitions 1 --replication-factor %d --config cleanup.policy=compact", u.topic, replicas)
	}
	create := s.cfg.AdminCommand("kafka-topics.sh", arguments)
	if spec == nil {
		s.fail("topic", u.topic, "does not exist, and records for it wait", create+"; or set sink.kafka.create_topics.partitions")
		return
	}
	if s.short {
		return // the relay creates it, or logs why it cannot
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	err := s.inspector.MayCreate(limited, u.topic, *spec)
	switch {
	case err == nil:
		s.ok("topic", u.topic, "does not exist; the relay can create it")
	case kafka.IsRefusal(err):
		s.fail("topic", u.topic, "does not exist, and the user may not create it: "+oneLine(err), create+"; or "+s.grantAll(u))
	default:
		s.fail("topic", u.topic, "does not exist, and the cluster rejects its creation: "+oneLine(err), create)
	}
}

// allowed compares the rights of the user with those that the relay needs.
func (s *kafkaChecker) allowed(u use, t *kafka.Topic) {
	var lacking []kafka.Operation
	for _, op := range u.needs {
		allowed, known := t.Allows(op)
		if !known {
			s.ok("rights", u.topic, "unknown: the cluster does not report them")
			return
		}
		if !allowed {
			lacking = append(lacking, op)
		}
	}
	if len(lacking) > 0 {
		s.fail("rights", u.topic, "the user lacks "+strings.ReplaceAll(strings.TrimPrefix(operations(lacking), "--operation "), " --operation ", " and "),
			s.cfg.GrantCommand(operations(lacking)+" --topic "+u.topic))
		return
	}
	s.readBack(u, t)
	s.ok("rights", u.topic, strings.ReplaceAll(strings.TrimPrefix(operations(u.needs), "--operation "), " --operation ", ", "))
}

// readsBack reports whether a relay that takes over looks up which rows a topic has.
func (s *kafkaChecker) readsBack(u use) bool {
	return !s.short && u.sample != nil && s.Relay.Positions.Topic != ""
}

// readBack checks whether a relay that takes over may read which rows a topic has.
func (s *kafkaChecker) readBack(u use, t *kafka.Topic) {
	const name = "read back"
	if !s.readsBack(u) {
		return
	}
	if ok, known := t.Allows(kafka.OperationRead); known && !ok {
		s.warn(name, u.topic, "the user lacks Read: "+twice, s.cfg.GrantCommand("--operation Read --topic "+u.topic))
		return
	}
	s.ok(name, u.topic, "a relay that takes over can read which rows are stored")
}

// alter returns the command that changes a setting of a topic.
func (s *kafkaChecker) alter(topic, setting, value string) string {
	if strings.Contains(value, ",") {
		value = "[" + value + "]"
	}
	return s.cfg.AdminCommand("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --add-config %s=%s", topic, setting, value))
}

// replicas checks whether Kafka can acknowledge a record, and whether an acknowledged record is safe.
func (s *kafkaChecker) replicas(u use, t *kafka.Topic) {
	insync, err := strconv.Atoi(t.Settings["min.insync.replicas"])
	if err != nil {
		return
	}
	const name = "min.insync.replicas"
	switch text := fmt.Sprintf("%d of %d replicas", insync, t.Replicas); {
	case insync > t.Replicas:
		s.warn(name, u.topic, fmt.Sprintf("%d, but the topic has only %s: Kafka 4 waits for all of these, and older versions acknowledge no record", insync, terminal.Counted(t.Replicas, "replica")),
			s.alter(u.topic, name, strconv.Itoa(max(1, t.Replicas-1))))
	case insync > t.InSync:
		s.fail(name, u.topic, fmt.Sprintf("%d, but %d replicas are in sync: records for it wait", insync, t.InSync), "start the brokers of the other replicas")
	default:
		s.ok(name, u.topic, text)
	}
	durable := func(found, fix string) { s.warn("durability", u.topic, found, fix) }
	switch {
	case t.Replicas < 2:
		durable("one replica: acknowledged records are lost with its disk", "add replicas with kafka-reassign-partitions.sh; a cluster of one broker cannot do better")
	case t.Settings["unclean.leader.election.enable"] == "true":
		durable("unclean.leader.election.enable is true: a replica that is behind may become leader, and acknowledged records are lost", s.alter(u.topic, "unclean.leader.election.enable", "false"))
	case insync < 2:
		durable(fmt.Sprintf("min.insync.replicas is %d: a record that only one broker has is lost with it", insync), s.alter(u.topic, name, "2"))
	case insync >= t.Replicas:
		durable(fmt.Sprintf("min.insync.replicas is %d, and there are %d replicas: without one broker, Kafka acknowledges nothing", insync, t.Replicas), s.alter(u.topic, name, strconv.Itoa(t.Replicas-1)))
	default:
		s.ok("durability", u.topic, fmt.Sprintf("%d replicas, at least %d in sync", t.Replicas, insync))
	}
}

// policy checks cleanup.policy. A compacted topic rejects records without a key, and keeps only the last record of a key.
func (s *kafkaChecker) policy(u use, t *kafka.Topic) {
	const name = "cleanup.policy"
	policy := t.Settings[name]
	compacted := slices.Contains(strings.Split(policy, ","), "compact")
	switch {
	case s.short && u.compacted: // the relay logs that itself
	case u.compacted && !compacted:
		s.warn(name, u.topic, policy+": the position record expires", s.alter(u.topic, name, "compact"))
	case u.parks && compacted:
		s.fail(name, u.topic, policy+": compaction removes records of parked keys, and they are lost", s.alter(u.topic, name, "delete"))
	case !u.compacted && compacted && u.sample.keyless > 0:
		s.fail(name, u.topic, fmt.Sprintf("%s: the topic rejects records without a key, and %d of the last rows have none", policy, u.sample.keyless), s.alter(u.topic, name, "delete"))
	case !u.compacted && compacted:
		s.warn(name, u.topic, policy+": the topic keeps only the last record of a key, and rejects records without one", s.alter(u.topic, name, "delete"))
	default:
		s.ok(name, u.topic, policy)
	}
}

// retention checks that the topic keeps the records of parked keys until somebody releases them.
func (s *kafkaChecker) retention(u use, t *kafka.Topic) {
	const name = "retention"
	if !u.parks {
		return
	}
	for _, setting := range []string{"retention.ms", "retention.bytes"} {
		if value := t.Settings[setting]; value != "-1" && value != "" {
			s.warn(name, u.topic, fmt.Sprintf("%s is %s: a record of a parked key that is not released by then is lost", setting, value), s.alter(u.topic, setting, "-1"))
			return
		}
	}
	s.ok(name, u.topic, "records of parked keys do not expire")
}

// limit compares the largest record of the sample with the topic's limit.
func (s *kafkaChecker) limit(u use, t *kafka.Topic) {
	const name = "max.message.bytes"
	limit, err := strconv.Atoi(t.Settings[name])
	if err != nil {
		return
	}
	wanted, largest := s.cfg.MaxMessageBytes, 0
	if u.sample != nil {
		largest = sizeInKafka(u.sample.largest)
	}
	switch {
	case largest > limit:
		found := fmt.Sprintf("%d, but one of the last rows is a record of %d bytes", limit, largest)
		fix := s.alter(u.topic, name, strconv.Itoa(2*largest))
		if compression := s.cfg.Compression; compression != "" && compression != "none" {
			s.warn(name, u.topic, found+" before "+compression, fix)
			return
		}
		s.fail(name, u.topic, found, fix)
	case !u.compacted && wanted > limit:
		s.warn(name, u.topic, fmt.Sprintf("%d, but sink.kafka.max_message_bytes is %d: the topic rejects records between the two", limit, wanted), s.alter(u.topic, name, strconv.Itoa(wanted)))
	case largest > 0:
		s.ok(name, u.topic, fmt.Sprintf("%d; the largest of the last records has %d", limit, largest))
	default:
		s.ok(name, u.topic, strconv.Itoa(limit))
	}
}

// longOutage is the maximum age of rows that a check assumes after an outage.
const longOutage = 24 * time.Hour

// timestamps checks that the topic accepts old timestamps: records have the commit time, which may be old after an outage.
func (s *kafkaChecker) timestamps(u use, t *kafka.Topic) {
	const name = "message.timestamp.before.max.ms"
	ms, err := strconv.ParseInt(t.Settings[name], 10, 64)
	switch {
	case err != nil || u.compacted:
	case t.Settings["message.timestamp.type"] == "LogAppendTime":
		s.ok(name, u.topic, "not used: the topic has message.timestamp.type=LogAppendTime")
	case time.Duration(min(ms, longOutage.Milliseconds()))*time.Millisecond < longOutage:
		s.warn(name, u.topic, fmt.Sprintf("%s: records of older commits get the current time, and the commit time in a header", time.Duration(ms)*time.Millisecond),
			s.cfg.AdminCommand("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --delete-config %s", u.topic, name)))
	default:
		s.ok(name, u.topic, "accepts records after an outage of a day")
	}
}
