package kafka

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// settings checks the configuration of a topic.
func (i *inspection) settings(u usedTopic, t *topicState) {
	if t.settings == nil {
		found := "the user may not read them, so other conditions of the topic are unknown"
		if i.cfg.MaxMessageBytes == 0 {
			found += ", and the relay limits batches to 1,000,000 bytes"
		}
		i.Doubt("settings", u.name, found, i.cfg.grantCommand("--operation DescribeConfigs --topic "+u.name))
		return
	}
	i.Met("settings", u.name, "readable")
	i.replicas(u, t)
	i.policy(u, t)
	i.retention(u, t)
	i.limit(u, t)
	i.timestamps(u, t)
}

// alter returns the command that changes a setting of a topic.
func (i *inspection) alter(topic, setting, value string) string {
	if strings.Contains(value, ",") {
		value = "[" + value + "]"
	}
	return i.cfg.adminCommand("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --add-config %s=%s", topic, setting, value))
}

// replicas checks whether Kafka can acknowledge a record, and whether an acknowledged record is safe.
func (i *inspection) replicas(u usedTopic, t *topicState) {
	insync, err := strconv.Atoi(t.settings["min.insync.replicas"])
	if err != nil {
		return
	}
	const name = "min.insync.replicas"
	replicas := "1 replica"
	if t.replicas != 1 {
		replicas = fmt.Sprintf("%d replicas", t.replicas)
	}
	switch {
	case insync > t.replicas:
		i.Doubt(name, u.name, fmt.Sprintf("%d, but the topic has only %s: Kafka 4 waits for all of these, and older versions acknowledge no record", insync, replicas),
			i.alter(u.name, name, strconv.Itoa(max(1, t.replicas-1))))
	case insync > t.inSync:
		i.Failed(name, u.name, fmt.Sprintf("%d, but %d replicas are in sync: records for it wait", insync, t.inSync), "start the brokers of the other replicas")
	default:
		i.Met(name, u.name, fmt.Sprintf("%d of %d replicas", insync, t.replicas))
	}
	durable := func(found, fix string) { i.Doubt("durability", u.name, found, fix) }
	switch {
	case t.replicas < 2:
		durable("one replica: acknowledged records are lost with its disk", "add replicas with kafka-reassign-partitions.sh; a cluster of one broker cannot do better")
	case t.settings["unclean.leader.election.enable"] == "true":
		durable("unclean.leader.election.enable is true: a replica that is behind may become leader, and acknowledged records are lost", i.alter(u.name, "unclean.leader.election.enable", "false"))
	case insync < 2:
		durable(fmt.Sprintf("min.insync.replicas is %d: a record that only one broker has is lost with it", insync), i.alter(u.name, name, "2"))
	case insync >= t.replicas:
		durable(fmt.Sprintf("min.insync.replicas is %d, and there are %d replicas: without one broker, Kafka acknowledges nothing", insync, t.replicas), i.alter(u.name, name, strconv.Itoa(t.replicas-1)))
	default:
		i.Met("durability", u.name, fmt.Sprintf("%d replicas, at least %d in sync", t.replicas, insync))
	}
}

// policy checks cleanup.policy. A compacted topic rejects records without a key, and keeps only the last record of a key.
func (i *inspection) policy(u usedTopic, t *topicState) {
	const name = "cleanup.policy"
	policy := t.settings[name]
	compacted, _ := t.compacted()
	switch {
	case i.use.Short && u.compacted: // the relay logs that itself
	case u.compacted && !compacted:
		i.Doubt(name, u.name, policy+": the position record expires", i.alter(u.name, name, "compact"))
	case u.parks && compacted:
		i.Failed(name, u.name, policy+": compaction removes records of parked keys, and they are lost", i.alter(u.name, name, "delete"))
	case !u.compacted && compacted && u.records.Keyless > 0:
		i.Failed(name, u.name, fmt.Sprintf("%s: the topic rejects records without a key, and %d of the last rows have none", policy, u.records.Keyless), i.alter(u.name, name, "delete"))
	case !u.compacted && compacted:
		i.Doubt(name, u.name, policy+": the topic keeps only the last record of a key, and rejects records without one", i.alter(u.name, name, "delete"))
	default:
		i.Met(name, u.name, policy)
	}
}

// retention checks that the topic keeps the records of parked keys until somebody releases them.
func (i *inspection) retention(u usedTopic, t *topicState) {
	const name = "retention"
	if !u.parks {
		return
	}
	for _, setting := range []string{"retention.ms", "retention.bytes"} {
		if value := t.settings[setting]; value != "-1" && value != "" {
			i.Doubt(name, u.name, fmt.Sprintf("%s is %s: a record of a parked key that is not released by then is lost", setting, value), i.alter(u.name, setting, "-1"))
			return
		}
	}
	i.Met(name, u.name, "records of parked keys do not expire")
}

// limit compares the largest record of the sample with the topic's limit.
func (i *inspection) limit(u usedTopic, t *topicState) {
	const name = "max.message.bytes"
	limit, err := strconv.Atoi(t.settings[name])
	if err != nil {
		return
	}
	wanted, largest := i.cfg.MaxMessageBytes, 0
	if u.records != nil {
		largest = sizeAlone(u.records.Largest)
	}
	switch {
	case largest > limit:
		found := fmt.Sprintf("%d, but one of the last rows is a record of %d bytes", limit, largest)
		fix := i.alter(u.name, name, strconv.Itoa(2*largest))
		if compression := i.cfg.Compression; compression != "" && compression != "none" {
			i.Doubt(name, u.name, found+" before "+compression, fix)
			return
		}
		i.Failed(name, u.name, found, fix)
	case !u.compacted && wanted > limit:
		i.Doubt(name, u.name, fmt.Sprintf("%d, but sink.kafka.max_message_bytes is %d: the topic rejects records between the two", limit, wanted), i.alter(u.name, name, strconv.Itoa(wanted)))
	case largest > 0:
		i.Met(name, u.name, fmt.Sprintf("%d; the largest of the last records has %d", limit, largest))
	default:
		i.Met(name, u.name, strconv.Itoa(limit))
	}
}

// longOutage is the maximum age of rows that a check assumes after an outage.
const longOutage = 24 * time.Hour

// timestamps checks that the topic accepts old timestamps: records have the commit time, which may be old after an outage.
func (i *inspection) timestamps(u usedTopic, t *topicState) {
	const name = "message.timestamp.before.max.ms"
	ms, err := strconv.ParseInt(t.settings[name], 10, 64)
	switch {
	case err != nil || u.compacted:
	case t.settings["message.timestamp.type"] == "LogAppendTime":
		i.Met(name, u.name, "not used: the topic has message.timestamp.type=LogAppendTime")
	case time.Duration(min(ms, longOutage.Milliseconds()))*time.Millisecond < longOutage:
		i.Doubt(name, u.name, fmt.Sprintf("%s: records of older commits get the current time, and the commit time in a header", time.Duration(ms)*time.Millisecond),
			i.cfg.adminCommand("kafka-configs.sh", fmt.Sprintf("--alter --entity-type topics --entity-name %s --delete-config %s", u.name, name)))
	default:
		i.Met(name, u.name, "accepts records after an outage of a day")
	}
}
