package soak

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// The topics of a soak with a missing one: routes share the aggregates, except that one aggregate has a
// route of its own, whose topic does not exist.
const (
	topicPrefix  = "soak-"
	missingRoute = "missing"
)

func workingRoutes() []string { return []string{"a", "b"} }

// route returns the route of an aggregate.
func route(aggregate string) string {
	if aggregate == aggregateName(0) {
		return missingRoute
	}
	routes := workingRoutes()
	return routes[int(aggregate[len(aggregate)-1])%len(routes)]
}

var topicProperties = map[string]string{"message.timestamp.type": "LogAppendTime", "max.message.bytes": "4194304"}

// createTopics creates the topics of the soak that work, and returns the template of their names.
func (s *soak) createTopics(t *testing.T, cluster *kafkatest.Cluster) (template string) {
	t.Helper()
	if s.cfg.park {
		s.topics = []string{cluster.Topic(t, 6, map[string]string{"message.timestamp.type": "LogAppendTime", "max.message.bytes": parkLimit})}
		cluster.CreateTopic(t, deadLetterTopic, 3, topicProperties)
		return s.topics[0]
	}
	if !s.cfg.missing {
		s.topics = []string{cluster.Topic(t, 6, topicProperties)}
		return s.topics[0]
	}
	for _, route := range workingRoutes() {
		cluster.CreateTopic(t, topicPrefix+route, 3, topicProperties)
		s.topics = append(s.topics, topicPrefix+route)
	}
	s.confirmable = s.confirms.Outage()
	s.create = func() { cluster.CreateTopic(t, topicPrefix+missingRoute, 1, topicProperties) }
	return topicPrefix + "${route}"
}

// lostSources are attacks on the relay's session with Postgres, not on the relay itself.
func lostSources() map[Attack]int {
	return map[Attack]int{SenderTerminate: 4, CutPostgres: 3, PostgresFast: 1, PostgresImmediate: 2}
}

// A missing topic does not delay the others, however often the source is lost: the relay acquires the slot
// again immediately, although the rows of that topic are not confirmed. When the topic is created, it
// receives its rows. There are no duplicates.
func TestSoakMissingTopic(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	s := newSoak(t, soakConfig{missing: true, heldWithin: heldWithin})
	s.run(t, rig.EnvInt(t, "OUTBOX_TEST_SOURCE_LOSSES", 8), lostSources())
	s.report(t)
	s.complain(t)
}

// rowsBehindMissing is how many rows may come after those of the missing topic: the relay holds at most 256 MiB of them, and one
// takes about 1 kB.
const rowsBehindMissing = 150_000

// fullBehindMissing reports whether the relay will soon wait until the missing topic is created.
func (s *soak) fullBehindMissing() bool {
	return s.cfg.missing && s.checker.Progress().Rows > rowsBehindMissing
}

// waitsForOthers delays one topic while another one is missing.
func waitsForOthers(fake *kafkatest.FakeCluster) {
	fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topicPrefix + "a", Err: kerr.UnknownTopicOrPartition, Count: -1})
}

// A slot counts as held if it is never free for longer than the limit while its server is up.
func TestHolding(t *testing.T) {
	at := epoch
	h := holding{limit: time.Second}
	for _, step := range []struct {
		after  time.Duration
		now    Sample
		broken bool
	}{
		{0, Sample{Confirmed: 1, Active: true}, false},
		{time.Minute, Sample{Confirmed: 1, Active: true}, false},
		{time.Second / 2, Sample{Confirmed: 1}, false},
		{time.Second, Sample{Confirmed: 1}, false},
		{time.Second / 2, Sample{}, false}, // the server is down: that time does not count
		{time.Second, Sample{Confirmed: 1}, false},
		{time.Second, Sample{Confirmed: 1}, false},
		{time.Millisecond, Sample{Confirmed: 1}, true},
		{time.Second, Sample{Confirmed: 1}, false}, // which is known
		{time.Second, Sample{Confirmed: 1, Active: true}, false},
		{time.Second, Sample{Confirmed: 1}, false},
	} {
		at = at.Add(step.after)
		step.now.At = at
		if got := h.sample(step.now); got != step.broken {
			t.Errorf("at %v: broken is %t", at.Sub(epoch), got)
		}
	}
	if h.longest != 2*time.Second+time.Millisecond {
		t.Errorf("the slot was free for %v at most", h.longest)
	}
}
