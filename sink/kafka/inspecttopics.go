package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A usedTopic is a topic and what the relay does with it.
type usedTopic struct {
	name      string
	needs     []operation
	compacted bool              // it must be compacted
	parks     bool              // it has the records of parked keys, until they are released
	records   *sink.Destination // describes the records for it; nil: it gets none but positions
}

// usedTopics returns the known topics, each once: those of the last rows first.
func (i *inspection) usedTopics() []usedTopic {
	var all []usedTopic
	for n, d := range i.use.Destinations {
		all = append(all, usedTopic{name: d.Name, needs: []operation{operationDescribe, operationWrite}, records: &i.use.Destinations[n]})
	}
	if name := i.use.Positions; name != "" {
		all = append(all, usedTopic{name: name, needs: []operation{operationDescribe, operationRead, operationWrite}, compacted: true})
	}
	getsRows := slices.ContainsFunc(i.use.Destinations, func(d sink.Destination) bool { return d.Name == i.use.DeadLetters })
	if name := i.use.DeadLetters; name != "" && !getsRows {
		dead := usedTopic{name: name, needs: []operation{operationDescribe, operationWrite}, records: i.deadLetters()}
		if i.use.Parks {
			dead.parks, dead.needs = true, append(dead.needs, operationRead)
		}
		all = append(all, dead)
	}
	return all
}

// deadLetters describes the records for the dead-letter topic, which must accept what the other topics accept. A dead letter
// keeps its key, if it has one.
func (i *inspection) deadLetters() *sink.Destination {
	var all sink.Destination
	for _, d := range i.use.Destinations {
		if all.Largest == nil || d.Largest.Size() > all.Largest.Size() {
			all.Largest = d.Largest
		}
		all.Keyless += d.Keyless
	}
	return &all
}

// topics checks the known topics.
func (i *inspection) topics(ctx context.Context) {
	used := i.usedTopics()
	var names []string
	for _, u := range used {
		names = append(names, u.name)
	}
	var topics []*topicState
	if !i.ask(ctx, "topic", strings.Join(names, ", "), func(ctx context.Context) (err error) {
		topics, err = i.inspector.topics(ctx, names...)
		return err
	}) {
		return
	}
	partitions := 0
	for n, u := range used {
		i.topic(ctx, u, topics[n])
		if n < len(i.use.Destinations) {
			partitions += topics[n].partitions
		}
	}
	if !i.use.Short {
		i.batches(partitions)
	}
}

// batches checks that the window has room for large batches of all partitions that the last rows may use.
func (i *inspection) batches(partitions int) {
	const name = "batches"
	if partitions == 0 {
		return
	}
	if found, fix := i.cfg.smallBatches(partitions); found != "" {
		i.Doubt(name, "", found, fix)
		return
	}
	i.Met(name, "", fmt.Sprintf("sink.kafka.window.bytes is enough for the %d partitions of the last rows", partitions))
}

// topic checks one topic.
func (i *inspection) topic(ctx context.Context, u usedTopic, t *topicState) {
	switch {
	case t.missing:
		i.missing(ctx, u)
		return
	case t.err != nil:
		found := t.err.Error()
		fix := ""
		if isRefusal(t.err) {
			found = "the user lacks Describe, so its other rights are not known: " + found
			fix = i.grantAll(u)
		}
		i.Failed("topic", u.name, found, fix)
		return
	}
	i.Met("topic", u.name, fmt.Sprintf("exists with %d partitions", t.partitions))
	if t.leaderless > 0 {
		i.Failed("leaders", u.name, fmt.Sprintf("%d of %d partitions have no leader, and records for them wait", t.leaderless, t.partitions), "start the brokers of their replicas")
	} else {
		i.Met("leaders", u.name, "every partition has one")
	}
	i.allowed(u, t)
	i.settings(u, t)
}

// grantAll returns the command that grants everything that the relay does with a topic, for one whose rights the cluster does not report
// before it exists, or before the user may see it.
func (i *inspection) grantAll(u usedTopic) string {
	rights := operations(u.needs)
	if i.readsBack(u) && !slices.Contains(u.needs, operationRead) {
		rights += " --operation Read"
	}
	if u.compacted || i.cfg.CreateTopics != nil {
		rights += " --operation Create"
	}
	return i.cfg.grantCommand(rights + " --operation DescribeConfigs --topic " + u.name)
}

func operations(all []operation) string {
	var texts []string
	for _, op := range all {
		texts = append(texts, "--operation "+op.String())
	}
	return strings.Join(texts, " ")
}

// missing checks whether the relay would create a topic.
func (i *inspection) missing(ctx context.Context, u usedTopic) {
	spec := i.cfg.CreateTopics
	replicas := min(len(i.brokers), 3)
	arguments := fmt.Sprintf("--create --topic %s --partitions 6 --replication-factor %d", u.name, replicas)
	if u.compacted {
		spec = &TopicSpec{Partitions: 1, ReplicationFactor: -1}
		arguments = fmt.Sprintf("%s --replication-factor %d", createCompacted(u.name), replicas)
	}
	create := i.cfg.adminCommand("kafka-topics.sh", arguments)
	if spec == nil {
		i.Failed("topic", u.name, "does not exist, and records for it wait", create+"; or set sink.kafka.create_topics.partitions")
		return
	}
	if i.use.Short {
		return // the relay creates it, or logs why it cannot
	}
	limited, cancel := context.WithTimeout(ctx, i.use.Limits.Request)
	defer cancel()
	err := i.inspector.mayCreate(limited, u.name, *spec)
	switch {
	case err == nil:
		i.Met("topic", u.name, "does not exist; the relay can create it")
	case isRefusal(err):
		i.Failed("topic", u.name, "does not exist, and the user may not create it: "+err.Error(), create+"; or "+i.grantAll(u))
	default:
		i.Failed("topic", u.name, "does not exist, and the cluster rejects its creation: "+err.Error(), create)
	}
}

// allowed compares the rights of the user with those that the relay needs.
func (i *inspection) allowed(u usedTopic, t *topicState) {
	var lacking []operation
	for _, op := range u.needs {
		allowed, known := t.allows(op)
		if !known {
			i.Met("rights", u.name, "unknown: the cluster does not report them")
			return
		}
		if !allowed {
			lacking = append(lacking, op)
		}
	}
	if len(lacking) > 0 {
		i.Failed("rights", u.name, "the user lacks "+strings.ReplaceAll(strings.TrimPrefix(operations(lacking), "--operation "), " --operation ", " and "),
			i.cfg.grantCommand(operations(lacking)+" --topic "+u.name))
		return
	}
	i.readBack(u, t)
	i.Met("rights", u.name, strings.ReplaceAll(strings.TrimPrefix(operations(u.needs), "--operation "), " --operation ", ", "))
}

// readsBack reports whether a relay that takes over looks up which rows a topic has.
func (i *inspection) readsBack(u usedTopic) bool {
	return !i.use.Short && u.records != nil && i.use.Positions != ""
}

// readBack checks whether a relay that takes over may read which rows a topic has.
func (i *inspection) readBack(u usedTopic, t *topicState) {
	const name = "read back"
	if !i.readsBack(u) {
		return
	}
	if ok, known := t.allows(operationRead); known && !ok {
		i.Doubt(name, u.name, "the user lacks Read: "+twice, i.cfg.grantCommand("--operation Read --topic "+u.name))
		return
	}
	i.Met(name, u.name, "a relay that takes over can read which rows are stored")
}
