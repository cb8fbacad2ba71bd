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

// The topics of a soak that has one too few: routes share the aggregates, but one aggregate alone
// has the route whose topic nobody has created.
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

// lostSources are attacks on the relay's session with Postgres that leave the relay itself alone.
func lostSources() map[Attack]int {
	return map[Attack]int{SenderTerminate: 4, CutPostgres: 3, PostgresFast: 1, PostgresImmediate: 2}
}

// While a topic is missing, the others go on, however often the source is lost: the relay has the slot
// again at once, although what waits for the topic is not confirmed. When somebody creates the topic,
// its rows come. Nothing is repeated.
func TestSoakMissingTopic(t *testing.T) {
	cfg := soakConfig{missing: true, heldWithin: heldWithin}
	if !need.Full() {
		cfg.fake = func(*kfake.Cluster) {}
	}
	s := newSoak(t, cfg)
	s.run(t, rig.EnvInt(t, "OUTBOX_TEST_SOURCE_LOSSES", 8), lostSources())
	s.report(t)
	s.complain(t)
}

// waitsForOthers makes one topic wait as long as another one is missing.
func waitsForOthers(fake *kfake.Cluster) {
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topicPrefix + "a", Err: kerr.UnknownTopicOrPartition, Count: -1})
}

// A slot is held if it is not free for longer than it may be, while its server is there.
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
		{time.Second / 2, Sample{}, false}, // the server is away: that is no time of the relay's
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
