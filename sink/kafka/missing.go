package kafka

import (
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// missingAnswers is how often a cluster has to say that a topic is missing, before the records that wait
// for it may be rejected. The last of them comes from another broker, if there is one: see asksElsewhere.
const missingAnswers = 3

// missingLogInterval is how often a missing topic is logged if records choose it: they may name any number.
const missingLogInterval = time.Second

// A missingState is since when the cluster has said that a topic is missing, or that the user may not
// write to it.
type missingState struct {
	since   time.Time
	answers int
}

// givesUp notes that the cluster has said once more that t is missing, and reports whether its records are
// to be rejected. A topic that was writable before is not theirs to blame for. p.mu is held.
func (p *producer) givesUp(t *topic, info topicInfo) bool {
	now := time.Now()
	if t.missing.answers == 0 {
		t.missing.since = now
	}
	t.missing.answers++
	return p.mayGiveUp(t) && !info.wasWritable && t.missing.answers >= missingAnswers &&
		p.cfg.GiveUp(sink.Missing{Destination: t.name, Since: t.missing.since, WindowShare: p.missingShare()})
}

// mayGiveUp reports whether records for t may be rejected because it is missing. p.mu is held.
func (p *producer) mayGiveUp(t *topic) bool { return p.cfg.GiveUp != nil && t.parts == nil }

// missingShare returns the share of the window that is taken by records for missing topics. p.mu is held.
func (p *producer) missingShare() float64 {
	memory, records := 0, 0
	for t := range p.unresolved {
		if t.missing.answers > 0 {
			memory += t.unassigned.capacity
			records += t.unassigned.records
		}
	}
	return max(float64(memory)/float64(p.window), float64(records)/float64(p.client.cfg.WindowRecords))
}

// forgetTopic removes a topic that was never found, so that rows cannot fill the memory with names.
// p.mu is held.
func (p *producer) forgetTopic(t *topic) {
	delete(p.topics, t.name)
	p.client.cluster.forget(t.name)
}

// mayLogMissing reports whether a topic may be logged as missing now. p.mu is held.
func (p *producer) mayLogMissing(t *topic) bool {
	if !p.mayGiveUp(t) {
		return true
	}
	now := time.Now()
	if now.Sub(p.missingLoggedAt) < missingLogInterval {
		return false
	}
	p.missingLoggedAt = now
	return true
}

// adviseMissing returns how to fix that t is missing. A stop would reject records that may be given up. p.mu is held.
func (p *producer) adviseMissing(t *topic) string {
	if p.mayGiveUp(t) {
		return "Create the topic while the relay runs: " + p.client.createTopic(t.name) + ". A stop makes dead letters of the rows that wait for it."
	}
	return p.client.adviseMissing(t.name)
}

// waitsForTopic reports whether cause is a missing topic that somebody else has to create.
func (p *producer) waitsForTopic(cause error) bool {
	code, ok := errors.AsType[*codeError](cause)
	return ok && code.code == sarama.ErrUnknownTopicOrPartition && p.client.cfg.CreateTopics == nil
}

// waitsForDeleted reports whether the records of part wait for their topic, which was deleted and which somebody else has to create.
// A topic that lacks only the partition exists. p.mu is held.
func (p *producer) waitsForDeleted(part *partition) bool {
	return p.client.cluster.topic(part.topic.name).err == sarama.ErrUnknownTopicOrPartition && p.waitsForTopic(part.cause)
}
